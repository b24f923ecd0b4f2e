# SPDX-License-Identifier: Apache-2.0
"""Measures workers that share a conversion on this machine; see `--help`.

Workers run one after the other, so that each has the machine to itself: two
cores say nothing about how many machines scale. Ratios are taken within a
round; the printed figure is the median over rounds.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time

import measure

HERE = pathlib.Path(__file__).resolve().parent
MIB = 2**20
MESH = ["--mesh", "shard=3"]


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench workers",
        description="Generates a sharded checkpoint and reshards it by one "
        "process, by one worker, and by several that share the work; kills a "
        "worker at half. Then plans a reshard of 20 TB, whose files have no "
        "payload, for up to 1,000 workers. Requires about three times the "
        "size of free disk, 8 GB of memory for the simulation, and root to "
        "drop the page cache.",
    )
    measure.add_options(parser, "the checkpoint")
    parser.add_argument(
        "--piece-size",
        default="128MiB",
        help="so that a small checkpoint has enough pieces (128MiB)",
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=["one", "several", "kill", "simulation"],
        help="leave out a part (repeatable)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON of the first part instead of the tables",
    )
    parser.add_argument("--tool", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--scale", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


class Bench:
    def __init__(self, args):
        self.args = args
        self.dir = args.dir / "tessera-bench-workers"
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        self.src = self.dir / "src"
        self.dst = self.dir / "dst"

    def make(self):
        measure.say("generating")
        measure.run(
            [
                self.args.python,
                HERE / "make_checkpoint.py",
                "transformer",
                self.src,
                str(self.args.size),
            ]
        )

    def command(self, *options):
        return [
            self.args.tool,
            "reshard",
            self.src,
            self.dst,
            *MESH,
            "--progress",
            "none",
            "--json",
            *options,
        ]

    def share(self, k, n):
        return ["--share", f"{k}/{n}", "--piece-size", self.args.piece_size]

    def run(self, *options):
        """One process, with a cold cache; its output is added."""
        measure.drop_caches()
        done = measure.run(self.command(*options))
        return {**json.loads(done.output), **done._asdict()}

    def clean(self):
        shutil.rmtree(self.dst, ignore_errors=True)

    def one(self):
        """One worker and no workers, in turn, with whole files and pieces."""
        rounds = []
        for number in range(self.args.rounds):
            measure.say(f"one worker, round {number + 1}")
            one = {}
            for name, options in {
                "plain": [],
                "worker": ["--share", "0/1"],
                "pieces": self.share(0, 1),
            }.items():
                one[name] = self.run(*options)
                self.clean()
            rounds.append(one)

        def ratio(name, what):
            return measure.figure(
                rounds, lambda one: one[name][what] / one["plain"][what]
            )

        return {
            name: {
                "seconds": measure.median(
                    rounds, lambda one: one[name]["seconds"]
                ),
                "to_plain": ratio(name, "seconds"),
                "cpu_to_plain": ratio(name, "cpu_seconds"),
            }
            for name in rounds[0]
        }

    def print_one(self, rows):
        print("\nOne worker, and one process without workers:")
        for name, title in {
            "plain": "without workers",
            "worker": "one worker, pieces of 1 GiB",
            "pieces": f"one worker, pieces of {self.args.piece_size}",
        }.items():
            row = rows[name]
            print(
                f"  {title:<34} {row['seconds']:6.2f} s  time "
                f"{measure.number(row['to_plain'])}  CPU "
                f"{measure.number(row['cpu_to_plain'])}"
            )

    def several(self):
        """Each worker of N alone on the machine."""
        print(
            "\nN workers, each alone on the machine, pieces of "
            f"{self.args.piece_size}:\n"
            "   N   plan  the longest  sum of all  read, of the source  "
            "commit"
        )
        size = sum(f.stat().st_size for f in self.src.iterdir())
        for count in (1, 2, 4):
            measure.say(f"{count} workers")
            done = [self.run(*self.share(k, count)) for k in range(count - 1)]
            # A worker that has nothing left to do makes its plan, and ends.
            plan = self.run(*self.share(0, count))["seconds"] if done else 0
            last = self.run(*self.share(count - 1, count))
            mean = (
                statistics.mean(one["seconds"] for one in done)
                if done
                else last["seconds"]
            )
            everyone = [*done, last]
            read = sum(one["bytes_read"] for one in everyone)
            print(
                f"  {count:2}  {plan:4.2f} s  "
                f"{max(o['seconds'] for o in everyone):7.2f} s  "
                f"{sum(o['seconds'] for o in everyone):9.2f} s  "
                f"{read / size:17.2f}  "
                f"{max(last['seconds'] - mean, 0):7.2f} s"
            )
            self.clean()

    def records(self):
        return [
            path for path in self.dst.glob(".work-*/*") if path.name.isdigit()
        ]

    def kill(self):
        """Killed when half of the pieces have a record, and run again."""
        measure.say("a kill at half")
        whole = self.run(*self.share(0, 1))
        self.clean()
        pieces = whole["share"]["pieces_total"]
        process = subprocess.Popen(
            self.command(*self.share(0, 1)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while len(self.records()) < pieces // 2:
            if process.poll() is not None:
                raise RuntimeError("it ended before it was killed")
            time.sleep(0.005)
        process.kill()
        process.wait()
        kept = len(self.records())
        again = self.run(*self.share(0, 1))
        self.clean()
        twice = again["share"]["pieces_done"] + kept - pieces
        print(
            f"\nKilled when {kept} of {pieces} pieces had a record: the next "
            f"run wrote {again['bytes_written'] / whole['bytes_written']:.2f} "
            "of all bytes, "
            f"{twice} pieces twice."
        )

    def simulate(self):
        for title, options in {
            "20 TB, 128 ranks to 96": [],
            "20 TB, 128 ranks to 96, from an object store": ["--from_store"],
            "a 70B model and its Adam, 64 ranks to 48": [
                "--terabytes=0.84",
                "--layers=80",
                "--source_ranks=64",
                "--ranks=48",
                "--workers=1,4,16,64",
            ],
        }.items():
            measure.say("simulating", title)
            print(f"\nSimulated: {title}\n")
            print(measure.run([self.args.scale, *options]).output)


def main():
    args = parse_arguments()
    bench = Bench(args)
    try:
        if not {"one", "several", "kill"} <= set(args.skip):
            bench.make()
        if "one" not in args.skip:
            rows = bench.one()
            if args.json:
                print(json.dumps({"one": rows}, indent=1))
                return
            bench.print_one(rows)
        for name in ("several", "kill"):
            if name not in args.skip:
                getattr(bench, name)()
        if "simulation" not in args.skip:
            bench.simulate()
        print(f"Load of the machine: {os.getloadavg()[0]:.1f}.")
    finally:
        shutil.rmtree(bench.dir)


if __name__ == "__main__":
    main()
