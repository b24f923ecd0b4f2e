# SPDX-License-Identifier: Apache-2.0
"""Compares fsdp with Python's FSDP2 on the CPU; see `--help`.

Every round runs both in turn for each number of ranks, so that a change in the
machine's speed affects both. Ratios are taken within a round; the printed figure is
the median over rounds, and how far rounds were apart.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import measure

HERE = pathlib.Path(__file__).resolve().parent
MIB = 2**20
WHO = ("ours", "pytorch")
WARMUP_STEPS = 5
# How the ranks divide the model, by the names of specifications.
WAYS = {"sharded": {"sharded": True}, "unsharded": {"sharded": False}}
# The losses of both after the same steps; they round differently.
LOSS_TOLERANCE = 1e-3
SIZES = {
    # Little arithmetic, so the cost of an engine shows.
    "small": {"dim": 64, "num_layers": 8, "ffn_dim": 176, "length": 33},
    # Mostly matrix products.
    "medium": {"dim": 256, "num_layers": 6, "ffn_dim": 704, "length": 129},
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench train",
        description="Trains a Llama with fsdp and with Python's FSDP2: same "
        "weights, same tokens, Gloo on this machine, one thread a rank. Prints "
        "tokens/s, memory and collectives of both, what sharding adds to a "
        "step, and what an operator on a managed parameter costs.",
    )
    parser.add_argument(
        "--ranks",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[1, 2, 4],
        help="numbers of ranks (1,2,4)",
    )
    add_arguments(parser, steps=30)
    return parser.parse_args()


def add_arguments(parser, steps):
    """Those of every benchmark that trains; `steps` is a default."""
    parser.add_argument(
        "--sizes",
        type=lambda text: text.split(","),
        default=list(SIZES),
        help=f"models ({','.join(SIZES)})",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--steps",
        type=int,
        default=steps,
        help=f"measured, in a round ({steps})",
    )
    parser.add_argument(
        "--optimizer",
        choices=["adamw", "fused_adamw", "muon"],
        default="fused_adamw",
        help="of both: plain, fused (fused_adamw), or Muon for matrices",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of tables"
    )
    parser.add_argument("--tool", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--operators", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", required=True, help=argparse.SUPPRESS)


class Bench:
    def __init__(self, args, scratch, ways=WAYS, device="cpu"):
        self.args = args
        self.device = device
        self.scratch = scratch
        self.ways = ways
        self.commands = {
            "ours": [args.tool],
            "pytorch": [args.python, "-B", str(HERE / "torch_train.py")],
        }

    def prepare(self, size, shape):
        """Writes weights, tokens, and a specification for each way to run.

        `shape` is that of the model called `size`, as in SIZES.
        """
        folder = self.scratch / size
        folder.mkdir()
        shape = dict(shape)
        spec = {
            "length": shape.pop("length"),
            "sizes": {
                "vocab_size": 256,
                "num_heads": 4,
                "num_kv_heads": 2,
                **shape,
            },
            "batch": 8,
            "steps": WARMUP_STEPS + self.args.steps,
            "lr": 1e-3,
            "device": self.device,
            "optimizer": self.args.optimizer,
            "init": str(folder / "init"),
            "data": str(folder / "tokens"),
        }
        for name, way in self.ways.items():
            text = json.dumps({**spec, "tp": 1, **way})
            (folder / f"{name}.json").write_text(text)
        subprocess.run(
            [
                self.args.python,
                "-B",
                HERE / "train_init.py",
                folder / f"{name}.json",
            ],
            check=True,
        )
        return folder

    def train(self, who, folder, num_ranks, way):
        """The cost of one run on `num_ranks`, for the slowest or largest rank."""
        out = folder / f"out-{who}"
        spec = folder / f"{way}.json"
        measure.run_ranks([*self.commands[who], str(spec), str(out)], num_ranks)
        ranks = [
            json.loads((folder / f"{out.name}.{rank}.json").read_text())
            for rank in range(num_ranks)
        ]
        first = ranks[0]
        spec = json.loads(spec.read_text())
        tokens = spec["batch"] * (spec["length"] - 1)
        steps = list(zip(first["seconds"], first["optimizer_seconds"]))
        steps = steps[WARMUP_STEPS:]
        run = {
            "tokens_per_second": tokens
            / statistics.median(s for s, _ in steps),
            # Forward and backward.
            "passes_seconds": statistics.median(s - o for s, o in steps),
            "optimizer_seconds": statistics.median(o for _, o in steps),
            "cpu_seconds": statistics.mean(
                statistics.median(rank["cpu_seconds"][WARMUP_STEPS:])
                for rank in ranks
            ),
            "private_peak_bytes": max(
                rank["private_peak_bytes"] for rank in ranks
            ),
            "private_added_bytes": max(
                rank["private_peak_bytes"] - rank["private_before_bytes"]
                for rank in ranks
            ),
            "device_peak_bytes": max(
                rank["device_peak_bytes"] for rank in ranks
            ),
            "loss": statistics.mean(rank["losses"][-1] for rank in ranks),
        }
        if "collectives" in first:
            run["collectives"] = first["collectives"]
            run["collective_bytes"] = first["collective_bytes"]
            run["tensor_bytes"] = max(
                rank["shard_bytes"] + rank["unsharded_peak_bytes"]
                for rank in ranks
            )
        return run

    def compare(self, folder, num_ranks, way):
        row = {
            who: self.train(who, folder, num_ranks, way)
            for who in self.commands
        }
        expect_equal_losses(row)
        return row

    def round(self, folder):
        result = {}
        for num_ranks in self.args.ranks:
            # Unsharded ranks do not communicate: each trains on its rows.
            for way in self.ways:
                row = self.compare(folder, num_ranks, way)
                result[row_name(num_ranks, way)] = row
        return result


def operators(command):
    """Of each case the figures that a bench of operators printed."""
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    return {
        case: {
            name: {
                "median": statistics.median(values),
                "spread": measure.spread(values),
            }
            for name, values in figures.items()
        }
        for case, figures in json.loads(done.stdout).items()
    }


def row_name(num_ranks, way):
    return str(num_ranks) if way == "sharded" else f"{num_ranks} {way}"


def expect_equal_losses(row):
    """Refuses a run with other results, because its speed means nothing."""
    ours, theirs = row["ours"]["loss"], row["pytorch"]["loss"]
    if not abs(ours - theirs) <= LOSS_TOLERANCE * abs(theirs):
        raise RuntimeError(f"losses differ: {ours} and PyTorch's {theirs}")


def summarize_row(rounds):
    """`rounds` are of one number of ranks: {"ours": run, "pytorch": run}."""
    row = {
        who: {
            key: measure.figure(rounds, lambda one: one[who][key])
            for key in (
                "tokens_per_second",
                "passes_seconds",
                "optimizer_seconds",
                "cpu_seconds",
                "private_peak_bytes",
                "private_added_bytes",
                "tensor_bytes",
            )
            if key in rounds[0][who]
        }
        for who in WHO
    }
    row["times_pytorch"] = {
        key: measure.figure(
            rounds, lambda one: one["ours"][key] / one["pytorch"][key]
        )
        for key in row["ours"]
    }
    for who in WHO:
        for key in ("collectives", "collective_bytes"):
            if key in rounds[0][who]:
                row[who][key] = rounds[0][who][key]
    return row


def summarize(rounds, ranks):
    return {
        "rows": {
            name: summarize_row([one[name] for one in rounds])
            for name in rounds[0]
        },
        "overhead_seconds": {
            str(num_ranks): overhead(rounds, num_ranks) for num_ranks in ranks
        },
    }


def overhead(rounds, num_ranks):
    """The time that sharding adds to forward and backward, for each side."""
    sharded, plain = (row_name(num_ranks, way) for way in WAYS)

    def added(one, who):
        passes = (one[name][who]["passes_seconds"] for name in (sharded, plain))
        return next(passes) - next(passes)

    return {
        who: measure.figure(rounds, lambda one, who=who: added(one, who))
        for who in WHO
    }


COLUMNS = (
    # The key, its heading, its scale, digits.
    ("tokens_per_second", "tokens/s", 1, 0),
    ("cpu_seconds", "CPU ms/step", 1e3, 2),
    ("optimizer_seconds", "optimizer ms", 1e3, 2),
    ("private_added_bytes", "memory MiB", 1 / MIB, 1),
    ("private_peak_bytes", "process MiB", 1 / MIB, 0),
    ("tensor_bytes", "tensors MiB", 1 / MIB, 2),
)


def print_line(first, who, cells):
    line = f"{first:<13}{who:<9}"
    print((line + "".join(f"{cell:>24}" for cell in cells)).rstrip())


def print_size(size, result):
    print(f"\nModel '{size}' {json.dumps(SIZES[size])}")
    print_line("ranks", "", [*(c[1] for c in COLUMNS), "AG, RS, AR"])
    for name, row in result["rows"].items():
        for who in WHO:
            run = row[who]
            cells = [
                measure.number(run[key], scale, digits) if key in run else ""
                for key, _, scale, digits in COLUMNS
            ]
            counts = run.get("collectives", {})
            kinds = ("all_gather", "reduce_scatter", "all_reduce")
            cells.append(", ".join(str(counts[k]) for k in kinds if counts))
            print_line(name if who == "ours" else "", who, cells)
        ratios = row["times_pytorch"]
        cells = [
            measure.number(ratios[key]) if key in ratios else ""
            for key, *_ in COLUMNS
        ]
        print_line("", "ratio", cells)
    for num_ranks, added in result["overhead_seconds"].items():
        print(
            f"Sharded less unsharded forward and backward on {num_ranks}: "
            f"{measure.number(added['ours'], 1e3)} ms; PyTorch "
            f"{measure.number(added['pytorch'], 1e3)} ms."
        )


def print_machine(report):
    machine = report["machine"]
    print(
        f"{machine['processors']} processors, load {machine['load']:.1f}; with "
        f"more ranks than processors they take turns.\nMedians of "
        f"{report['rounds']} rounds [least, largest]; {report['optimizer']}."
    )


def print_report(report):
    print_machine(report)
    for size, result in report["sizes"].items():
        print_size(size, result)
    linear = report["operators"]["managed linear"]
    print(
        "\nA Linear, plain "
        f"{measure.number(linear['plain_us'], 1, 3)} us, managed and "
        f"gathered {measure.number(linear['ours_us'], 1, 3)} us: "
        f"{measure.number(linear['overhead_us'], 1, 3)} us more.\n"
        "That is a transposition and a product of two managed tensors."
    )
    print(
        "AG, RS, AR: all-gathers, reduce-scatters, all-reduces of a step.\n"
        "Memory: the most private memory of a rank less what it had before it "
        "made the model.\nTensors: shards, and the most gathered parameters "
        "at once."
    )


def new_report(args):
    """The part that is known before anything ran."""
    return {
        "machine": {
            "processors": os.cpu_count(),
            "load": os.getloadavg()[0],
            "kernel": os.uname().release,
        },
        "rounds": args.rounds,
        "steps": args.steps,
        "optimizer": args.optimizer,
        "sizes": {},
    }


def main():
    args = parse_arguments()
    unknown = set(args.sizes) - set(SIZES)
    if unknown or args.rounds < 1 or args.steps < 1 or min(args.ranks) < 1:
        sys.exit("bench: at least one rank, round and step, of known sizes")
    report = new_report(args)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="tessera-train-"))
    try:
        bench = Bench(args, scratch)
        for size in args.sizes:
            folder = bench.prepare(size, SIZES[size])
            rounds = []
            for index in range(args.rounds):
                measure.say(f"{size}, round {index + 1} of {args.rounds}")
                rounds.append(bench.round(folder))
            report["sizes"][size] = summarize(rounds, args.ranks)
        report["operators"] = operators([args.operators])
    finally:
        shutil.rmtree(scratch)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report)


if __name__ == "__main__":
    main()
