# SPDX-License-Identifier: Apache-2.0
"""Compares dcp-convert with the converters of DeepSpeed, verl and accelerate on
their own checkpoints; see `--help`.

Every round runs both in turn on each checkpoint, with the page cache dropped
before each. Ratios are taken within a round; the printed figure is the median over
rounds.
"""

import argparse
import json
import os
import pathlib
import shutil

import measure

HERE = pathlib.Path(__file__).resolve().parent
MIB = 2**20

# The name of the rival, and how dcp-convert is asked for the same.
KINDS = {
    "deepspeed": ("zero_to_fp32, ZeRO-3", []),
    "verl": ("verl model_merger", ["--cast", "bf16"]),
    "accelerate": ("accelerate merge-weights", []),
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench dialects",
        description="Generates checkpoints of DeepSpeed, verl and accelerate "
        "on four ranks and merges each into a model of safetensors, with "
        "dcp-convert and with the framework's own converter. Requires about "
        "five times the size of free disk, and root to drop the page cache.",
    )
    measure.add_options(parser, "each checkpoint")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=list(KINDS),
        help="measure only this one (repeatable)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of a table"
    )
    parser.add_argument("--tool", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


class Bench:
    def __init__(self, args):
        self.args = args
        self.dir = args.dir / "tessera-bench-dialects"
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)

    def ours(self, src, dst, options):
        words = ["consolidate", src, dst, "--to", "safetensors"]
        return measure.convert_once(
            self.args.tool, *words, "--part", "model", *options
        )

    def theirs(self, kind, src, dst):
        return measure.rival_once(
            [self.args.python, HERE / "framework_merge.py", kind, src, dst]
        )

    def measure(self, kind):
        rival, options = KINDS[kind]
        src = self.dir / kind
        measure.say(f"generating {kind}")
        measure.run(
            [
                self.args.python,
                HERE / "make_dialect.py",
                kind,
                src,
                str(self.args.size),
            ]
        )
        rounds = []
        ours, theirs = self.dir / "ours", self.dir / "theirs"
        for number in range(self.args.rounds):
            measure.say(f"{kind}, round {number + 1} of {self.args.rounds}")
            one = {
                "ours": self.ours(src, ours, options),
                "theirs": self.theirs(kind, src, theirs),
                "disk": measure.fio_rates(
                    self.dir, min(self.args.size, 2 * 10**9)
                ),
            }
            # Refuses wrong results.
            measure.run([self.args.tool, "diff", ours, theirs])
            rounds.append(one)
            written = measure.size_of(ours)
            for path in (ours, theirs):
                shutil.rmtree(path)
        read = measure.size_of(src)
        shutil.rmtree(src)
        return {
            "rival": rival,
            "bytes": read,
            "written": written,
            "rounds": rounds,
        }

    def run(self):
        try:
            return {k: self.measure(k) for k in self.args.only or KINDS}
        finally:
            shutil.rmtree(self.dir)


def summarize(result):
    rounds = result["rounds"]

    def seconds(one, who):
        return one[who]["seconds"]

    def peak(who):
        return max(one[who]["peak_bytes"] for one in rounds)

    return {
        "rival": result["rival"],
        "bytes": result["bytes"],
        "written": result["written"],
        "disk_read": measure.median(rounds, lambda one: one["disk"]["read"]),
        "disk_write": measure.median(rounds, lambda one: one["disk"]["write"]),
        "seconds": measure.median(rounds, lambda one: seconds(one, "ours")),
        "rival_seconds": measure.median(
            rounds, lambda one: seconds(one, "theirs")
        ),
        "rival_import": measure.median(
            rounds, lambda one: one["theirs"]["import"]
        ),
        "times": measure.median(
            rounds, lambda one: seconds(one, "theirs") / seconds(one, "ours")
        ),
        "times_whole": measure.median(
            rounds,
            lambda one: (
                (one["theirs"]["import"] + seconds(one, "theirs"))
                / seconds(one, "ours")
            ),
        ),
        "peak_bytes": peak("ours"),
        "rival_peak_bytes": peak("theirs"),
    }


def print_table(summaries):
    line = "{:<28}{:>6}{:>7}{:>9}{:>16}{:>13}{:>10}{:>8}"
    print(
        line.format(
            "", "GB", "to GB", "seconds", "theirs", "x", "peak MiB", "theirs"
        )
    )
    for summary in summaries.values():
        print(
            line.format(
                summary["rival"],
                f"{summary['bytes'] / 1e9:.2f}",
                f"{summary['written'] / 1e9:.2f}",
                f"{summary['seconds']:.2f}",
                f"{summary['rival_seconds']:.2f} "
                f"(+ {summary['rival_import']:.2f})",
                f"{summary['times']:.1f} ({summary['times_whole']:.1f})",
                f"{summary['peak_bytes'] / MIB:.0f}",
                f"{summary['rival_peak_bytes'] / MIB:.0f}",
            )
        )
    some = next(iter(summaries.values()))
    print(
        f"\nThe disk reads {some['disk_read'] / 1e9:.2f} and writes "
        f"{some['disk_write'] / 1e9:.2f} GB/s (fio). Seconds of dcp-convert "
        "are those of\nthe whole process with fsync. In brackets: the rival's "
        "imports, and the ratio with\nthem. Load of the machine: "
        f"{os.getloadavg()[0]:.1f}."
    )


def main():
    args = parse_arguments()
    results = Bench(args).run()
    summaries = {kind: summarize(one) for kind, one in results.items()}
    if args.json:
        print(json.dumps(summaries, indent=1))
    else:
        print_table(summaries)


if __name__ == "__main__":
    main()
