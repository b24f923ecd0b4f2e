# SPDX-License-Identifier: Apache-2.0
"""Compares two files of `tools/bench all --json FILE`; see `--help`."""

import argparse
import json
import pathlib
import sys


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench compare",
        description="Compares two files of `tools/bench all --json FILE`: by "
        "how much Tessera became better or worse in comparison with its rivals, "
        "which ran on the same machine at the same time. Exits with 1 if a "
        "row became worse by more than the tolerance, or is missing.",
    )
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument(
        "--tolerance",
        type=float,
        default=20,
        metavar="PERCENT",
        help="what rounds may differ by (20)",
    )
    return parser.parse_args()


def read(path):
    """By benchmark and label."""
    try:
        report = json.loads(path.read_text())
        return {
            (row["bench"], row["label"]): row["times"]
            for row in report["figures"]
        }
    except OSError as error:
        sys.exit(f"bench: {error}")
    except (ValueError, KeyError, TypeError):
        sys.exit(f"bench: {path} is not a file of tools/bench all --json")


def main():
    args = parse_arguments()
    before, after = read(args.before), read(args.after)
    num_worse = 0
    print(f"{'':<60}{'before':>10}{'after':>10}{'change':>10}")
    for key in dict.fromkeys([*before, *after]):
        label = ": ".join(key)
        if key not in before or key not in after:
            which = args.before if key not in before else args.after
            num_worse += key in before
            print(f"{label:<60} is not in {which}")
            continue
        change = 100 * (after[key] / before[key] - 1)
        # 25 % more seconds are 20 % less speed, whichever way one looks.
        is_worse = before[key] / after[key] - 1 > args.tolerance / 100
        num_worse += is_worse
        print(
            f"{label:<60}{before[key]:>10.2f}{after[key]:>10.2f}"
            f"{change:>+9.0f}%{'  worse' if is_worse else ''}"
        )
    if num_worse:
        sys.exit(f"bench: {num_worse} rows became worse")


if __name__ == "__main__":
    main()
