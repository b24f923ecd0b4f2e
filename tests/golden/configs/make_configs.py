# SPDX-License-Identifier: Apache-2.0
"""Says what programs make of small training configs, by their own code.

Usage: make_configs.py SOURCES [PROGRAM]... >configs.json

SOURCES has a checkout of each program: torchtune, verl, automodel, prime-rl,
llama-factory. Nothing trains and no process group is made: the dataclasses and
the functions that make meshes, optimizers' arguments and schedules of learning
rates run, with empty modules in place of what they import beside that. A case
without `expected` is one that the program refuses; stderr has its words.
README.md says which packages this needs.
"""

import json
import sys

from argument_judges import llama_factory, prime_rl
from config_cases import CASES
from recipe_judges import automodel, torchtune, verl

SHOWN_STEPS = (0, 1, 2, 5, 9, 10, 11, 20, 50, 79, 80, 81, 90, 98, 99)

JUDGES = {
    "torchtune": torchtune,
    "verl": verl,
    "automodel": automodel,
    "prime-rl": prime_rl,
    "llama-factory": llama_factory,
}


def main():
    results = []
    only = set(sys.argv[2:])
    for program, name, ranks, text in CASES:
        if only and program not in only:
            continue
        case = {"program": program, "name": name, "ranks": ranks, "text": text}
        try:
            expected = JUDGES[program](text, ranks)
            expected["factors"] = [
                [step, round(expected["factors"][step], 9)]
                for step in SHOWN_STEPS
            ]
            case["expected"] = expected
        except (ValueError, AssertionError) as error:
            print(f"{program} {name}: {error}", file=sys.stderr)
        except TypeError as error:
            # A dataclass without such a field.
            if "unexpected keyword argument" not in str(error):
                raise
            print(f"{program} {name}: {error}", file=sys.stderr)
        results.append(case)
    lines = ",\n".join(json.dumps(case) for case in results)
    print(f"[\n{lines}\n]")


if __name__ == "__main__":
    main()
