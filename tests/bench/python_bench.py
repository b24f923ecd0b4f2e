# SPDX-License-Identifier: Apache-2.0
"""Compares the Python package with PyTorch's own storage; see `--help`.

Every round runs each side in turn. Ratios are taken within a round; the printed
figure is the median over rounds.
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
import time

import measure

HERE = pathlib.Path(__file__).resolve().parent
SAVERS = ("tessera", "torch-1", "torch-2")
STAGERS = ("tessera", "tessera-background", "torch-1", "torch-cached")
LOADERS = ("tessera", "safetensors", "fastsafetensors")


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench python",
        description="Saves and loads a sharded state through "
        "torch.distributed.checkpoint with tessera.torch's Writer and Reader "
        "and with PyTorch's FileSystemWriter and FileSystemReader, whose files "
        "are synced too: time to durable, stalls and slowdown of asynchronous "
        "saves, cold loads, memory beyond the state. Then a safetensors file "
        "next to safetensors.torch.load_file and fastsafetensors, and the time to "
        "import tessera.",
    )
    measure.add_options(parser, "state, of all ranks")
    parser.add_argument("--ranks", type=int, default=2, help="(2)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="of saves, in a round (3)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of a table"
    )
    parser.add_argument("--wheel", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rivals", required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def make_environment(python, wheel, rivals, folder):
    """A Python with the wheel, the packages of another, and a folder of more."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    other = subprocess.check_output(
        [
            python,
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib'))",
        ],
        text=True,
    )
    (site / "judge.pth").write_text(f"{other}{rivals}\n")
    own = folder / "bin/python"
    pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run(
        [own, *pip, "--disable-pip-version-check", wheel], check=True
    )
    return own


class Bench:
    def __init__(self, args, root):
        self.args = args
        self.root = root
        self.python = make_environment(
            args.python, args.wheel, args.rivals, root / "env"
        )

    def ranks(self, what, side, path, num_ranks=None):
        """The slowest rank's figures."""
        num_ranks = num_ranks or self.args.ranks
        spec = {
            "bytes": self.args.size // num_ranks,
            "path": str(path),
            "repeats": self.args.repeats,
        }
        out = self.root / "out"
        measure.run_ranks(
            [self.python, "-B", "-W", "ignore", HERE / "python_ranks.py"]
            + [what, side, json.dumps(spec), out],
            num_ranks,
        )
        told = [
            json.loads(pathlib.Path(f"{out}.{rank}.json").read_text())
            for rank in range(num_ranks)
        ]
        return {key: max(each[key] for each in told) for key in told[0]}

    def clear(self):
        for path in self.root.glob("checkpoint*"):
            shutil.rmtree(path)

    def in_turn(self, sides, number):
        return reversed(sides) if number % 2 else sides

    def round(self, number):
        result = {"save": {}, "async": {}, "load": {}, "file": {}}
        for side in self.in_turn(SAVERS, number):
            self.clear()
            result["save"][side] = self.ranks(
                "save", side, self.root / "checkpoint"
            )
        for side in self.in_turn(STAGERS, number):
            self.clear()
            result["async"][side] = self.ranks(
                "async", side, self.root / "checkpoint"
            )
        # Both load the files that the last side has written.
        for side in self.in_turn(("tessera", "torch-1"), number):
            measure.drop_caches()
            result["load"][side] = self.ranks(
                "load", side, self.root / "checkpoint-0"
            )
        self.clear()
        self.files(number, result["file"])
        result["import"] = self.import_seconds()
        return result

    def files(self, number, result):
        path = self.root / "model.safetensors"
        if not path.exists():
            write = (
                "import sys, torch; from safetensors.torch import save_file; "
                "n = int(sys.argv[2]) // (1 << 26); "
                "save_file({f'w{i}': torch.ones(4096, 4096) "
                "for i in range(max(n, 1))}, sys.argv[1])"
            )
            subprocess.run(
                [self.python, "-c", write, path, str(self.args.size)],
                check=True,
            )
        for side in self.in_turn(LOADERS, number):
            measure.drop_caches()
            result[side] = self.ranks("whole", side, path, num_ranks=1)

    def import_seconds(self):
        """How much longer `import tessera` takes than to start an interpreter."""

        def once(code):
            begin = time.monotonic()
            subprocess.run([self.python, "-B", "-c", code], check=True)
            return time.monotonic() - begin

        once("import tessera")
        with_it = statistics.median(once("import tessera") for _ in range(5))
        return with_it - statistics.median(once("pass") for _ in range(5))


# The figures of an asynchronous save, with their labels and units.
ASYNC = [
    ("first stall", "first_stall", "s"),
    ("later stalls", "later_stall", "s"),
    ("durable", "durable", "s"),
    ("steps, alone = 1", "slowdown", ""),
    ("memory", "memory", "MiB"),
]

# Each row has a label, the part of a round and the figure in it that it shows,
# our side, the rivals, and the unit.
ROWS = [
    ("save, durable", "save", "durable", "tessera", SAVERS[1:], "s"),
    ("save, memory", "save", "memory", "tessera", SAVERS[1:], "MiB"),
    *(
        (f"{name}, {label}", "async", key, side, STAGERS[2:], unit)
        for side, name in (
            ("tessera", "async_save"),
            ("tessera-background", "background"),
        )
        for label, key, unit in ASYNC
    ),
    ("load, cold", "load", "seconds", "tessera", ("torch-1",), "s"),
    ("load, memory", "load", "memory", "tessera", ("torch-1",), "MiB"),
    (
        *("safetensors file, cold", "file", "seconds", "tessera"),
        *(LOADERS[1:], "s"),
    ),
]


def summarize(rounds):
    """The rows: medians, and the ratio to each rival, above 1 for better."""
    rows = []
    for label, part, key, side, rivals, unit in ROWS:
        scale = 2**20 if unit == "MiB" else 1
        for rival in rivals:
            ours = [r[part][side][key] / scale for r in rounds]
            theirs = [r[part][rival][key] / scale for r in rounds]
            times = [b / a if a > 0 else 0 for a, b in zip(ours, theirs)]
            rows.append(
                {
                    "label": f"{label}, {rival}",
                    "ours": statistics.median(ours),
                    "rival": statistics.median(theirs),
                    "unit": unit,
                    "times": statistics.median(times),
                    "least_times": min(times),
                    "most_times": max(times),
                }
            )
    return rows


def print_report(report):
    print(
        f"{'what, and the rival':<52}{'ours':>9}{'rival':>9}"
        f"{'times as good':>16}{'rounds':>16}"
    )
    for row in report["rows"]:
        print(
            f"{row['label']:<52}{row['ours']:>9.3g}{row['rival']:>9.3g} "
            f"{row['unit']:<4}{row['times']:>11.2f}"
            f"{row['least_times']:>10.2f} - {row['most_times']:.2f}"
        )
    print(f"\nimport tessera takes {1000 * report['import_seconds']:.0f} ms.")
    print(f"Load of the machine at the beginning: {report['load']:.1f}.")


def main():
    args = parse_arguments()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        bench = Bench(args, pathlib.Path(scratch))
        rounds = []
        for number in range(args.rounds):
            measure.say(f"round {number + 1} of {args.rounds}")
            rounds.append(bench.round(number))
    report = {
        "load": load,
        "rows": summarize(rounds),
        "import_seconds": statistics.median(r["import"] for r in rounds),
        "rounds": rounds,
    }
    if args.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        print_report(report)


if __name__ == "__main__":
    main()
