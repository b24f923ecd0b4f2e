# SPDX-License-Identifier: Apache-2.0
"""Compares tensor parallelism with Python's on the CPU; see `--help`.

Like train_bench.py, and with the same runs: rounds alternate, ratios are taken
within a round.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import measure
import train_bench

# The name of a row, how many ranks, and how they divide the model.
ROWS = {
    "tp 2": (2, {"sharded": False, "tp": 2, "plan": "tp"}),
    "tp 2, sp": (2, {"sharded": False, "tp": 2, "plan": "sp"}),
    "tp 2, sp, loss": (2, {"sharded": False, "tp": 2, "plan": "sp_loss"}),
    "dp 2 x tp 2": (4, {"sharded": True, "tp": 2, "plan": "tp"}),
    "dp 2 x tp 2, sp, loss": (
        4,
        {"sharded": True, "tp": 2, "plan": "sp_loss"},
    ),
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench parallel",
        description="Trains a Llama with tensor, sequence and loss parallelism, "
        "alone and under fully_shard, here and with PyTorch's "
        "parallelize_module and FSDP2: same weights, same tokens, Gloo on this "
        "machine, one thread a rank. Prints tokens/s, memory and collectives "
        "of both, and what an operator on activations that lie in parts costs.",
    )
    train_bench.add_arguments(parser, steps=20)
    return parser.parse_args()


def print_size(size, rows):
    print(f"\nModel '{size}' {json.dumps(train_bench.SIZES[size])}")
    headings = ("tokens/s", "memory MiB", "AG, RS, AR", "MiB sent")
    print_line("ranks", "", headings)
    for name, row in rows.items():
        for who in train_bench.WHO:
            run = row[who]
            counts = run["collectives"]
            kinds = ("all_gather", "reduce_scatter", "all_reduce")
            print_line(
                name if who == "ours" else "",
                who,
                (
                    measure.number(run["tokens_per_second"], 1, 0),
                    measure.number(
                        run["private_added_bytes"], 1 / train_bench.MIB, 1
                    ),
                    ", ".join(str(counts[kind]) for kind in kinds),
                    f"{run['collective_bytes'] / train_bench.MIB:.2f}",
                ),
            )
        ratios = row["times_pytorch"]
        print_line(
            "",
            "ratio",
            (
                measure.number(ratios["tokens_per_second"]),
                measure.number(ratios["private_added_bytes"]),
            ),
        )


def print_line(first, who, cells):
    line = f"{first:<24}{who:<9}"
    print((line + "".join(f"{cell:>24}" for cell in cells)).rstrip())


def print_report(report):
    train_bench.print_machine(report)
    for size, rows in report["sizes"].items():
        print_size(size, rows)
    print(
        "\nAG, RS, AR: all-gathers, reduce-scatters and all-reduces of a step, "
        "the optimizer's included, over all axes; sent: the inputs of these on "
        "one rank.\nMemory: the most private memory of a rank less what it had "
        "before it made the model."
    )
    print_operators(report["operators"])


def print_operators(operators):
    print(
        "\nWhat an operator takes longer than on plain tensors, in us of the "
        "host, on one rank:"
    )
    for case, figures in operators["ours"].items():
        theirs = operators["pytorch"].get(case)
        cells = [measure.number(figures["overhead_us"], 1, 2)]
        if theirs is not None:
            ratio = (
                theirs["overhead_us"]["median"]
                / figures["overhead_us"]["median"]
            )
            cells.append(measure.number(theirs["overhead_us"], 1, 1))
            cells.append(f"1/{ratio:.0f} of DTensor's")
        print((f"{case:<33}" + "".join(f"{c:>24}" for c in cells)).rstrip())


def main():
    args = parse_arguments()
    unknown = set(args.sizes) - set(train_bench.SIZES)
    if unknown or args.rounds < 1 or args.steps < 1:
        sys.exit("bench: at least one round and step, of known sizes")
    report = train_bench.new_report(args)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="tessera-parallel-"))
    try:
        ways = {name: way for name, (_, way) in ROWS.items()}
        bench = train_bench.Bench(args, scratch, ways)
        for size in args.sizes:
            folder = bench.prepare(size, train_bench.SIZES[size])
            rounds = []
            for index in range(args.rounds):
                measure.say(f"{size}, round {index + 1} of {args.rounds}")
                rounds.append(
                    {
                        name: bench.compare(folder, num_ranks, name)
                        for name, (num_ranks, _) in ROWS.items()
                    }
                )
            report["sizes"][size] = {
                name: train_bench.summarize_row([one[name] for one in rounds])
                for name in ROWS
            }
        measure.say("operators")
        script = pathlib.Path(__file__).with_name("torch_operators.py")
        report["operators"] = {
            "ours": train_bench.operators([args.operators]),
            "pytorch": train_bench.operators([args.python, "-B", script]),
        }
    finally:
        shutil.rmtree(scratch)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report)


if __name__ == "__main__":
    main()
