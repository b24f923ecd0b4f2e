# SPDX-License-Identifier: Apache-2.0
"""Compares dcp-convert with PyTorch, cp and the disk itself; see `--help`.

Every round runs all of them in turn, with the page cache dropped before each,
so that a change in the disk's speed affects all. Ratios are taken within a round;
the printed figure is the median over rounds.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys

import measure

HERE = pathlib.Path(__file__).resolve().parent
MIB = 2**20


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench convert",
        description="Generates a sharded checkpoint and measures dcp-convert "
        "on it, compared with PyTorch's converters, cp and the disk (fio). Requires "
        "about three times the size of free disk, six with the memory test, "
        "and root to drop the page cache.",
    )
    measure.add_options(parser, "the checkpoint")
    parser.add_argument(
        "--max-memory",
        type=measure.parse_size,
        metavar="SIZE",
        default=256 * MIB,
        help="for dcp-convert (256MiB)",
    )
    parser.add_argument(
        "--index-tensors",
        default="100000",
        metavar="N[xRANKS]",
        help="in the inspect test (100000, on 4 ranks)",
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=["convert", "inspect", "memory"],
        help="leave out a part (repeatable)",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave what was generated, for another run",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of tables"
    )
    parser.add_argument("--tool", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Bench:
    def __init__(self, args):
        self.args = args
        self.dir = args.dir / "tessera-bench"
        self.dir.mkdir(parents=True, exist_ok=True)

    def make(self, kind, number):
        """A generated checkpoint, which is made unless it is still there."""
        path = self.dir / f"{kind}-{number}"
        if not path.exists():
            measure.say(f"generating {path.name}")
            partial = self.dir / f"{path.name}.partial"
            remove(partial)
            measure.run(
                [
                    self.args.python,
                    HERE / "make_checkpoint.py",
                    kind,
                    partial,
                    str(number),
                ]
            )
            partial.rename(path)
        return path

    def ours(self, *words):
        return measure.convert_once(
            self.args.tool, *words, "--max-memory", str(self.args.max_memory)
        )

    def torch(self, kind, src, dst):
        measure.drop_caches()
        done = measure.run(
            [self.args.python, HERE / "torch_convert.py", kind, src, dst]
        )
        parts = json.loads(done.output)
        return {
            "seconds": parts["convert"],
            "import": parts["import"],
            "sync": parts["sync"],
            "cpu_seconds": done.cpu_seconds,
            "peak_bytes": done.peak_bytes,
        }

    def copy(self, src, dst):
        measure.drop_caches()
        done = measure.run(
            [
                "bash",
                "-c",
                'cp -r "$1" "$2" && sync "$2"/* "$2"',
                "cp",
                src,
                dst,
            ]
        )
        return {
            "seconds": done.seconds,
            "cpu_seconds": done.cpu_seconds,
            "peak_bytes": done.peak_bytes,
        }

    def round(self, src, fio_bytes):
        """Everything once. The rivals' results are compared with ours."""
        at = {
            name: self.dir / name
            for name in (
                "ours.pt",
                "torch.pt",
                "ours.safetensors",
                "torch.safetensors",
                "resharded",
                "copy",
            )
        }
        try:
            result = {"fio": measure.fio_rates(self.dir, fio_bytes)}
            result["ours pt"] = self.ours("consolidate", src, at["ours.pt"])
            result["torch pt"] = self.torch("pt", src, at["torch.pt"])
            self.expect_equal(at["ours.pt"], at["torch.pt"])
            result["ours safetensors"] = self.ours(
                "consolidate",
                src,
                at["ours.safetensors"],
                "--include",
                "model.*",
                "--rename",
                r"s/^model\.//",
            )
            result["torch safetensors"] = self.torch(
                "safetensors", src, at["torch.safetensors"]
            )
            self.expect_equal(at["ours.safetensors"], at["torch.safetensors"])
            result["ours reshard"] = self.ours(
                "reshard", src, at["resharded"], "--mesh", "shard=3"
            )
            self.expect_equal(src, at["resharded"])
            remove(at["resharded"])
            result["cp"] = self.copy(src, at["copy"])
            return result
        finally:
            for path in at.values():
                remove(path)

    def expect_equal(self, ours, theirs):
        """Refuses wrong results. Removes files from the disk."""
        measure.run([self.args.tool, "diff", ours, theirs])
        for path in (ours, theirs):
            if path.is_file():
                path.unlink()

    def convert(self):
        src = self.make("transformer", self.args.size)
        size = measure.size_of(src)
        rounds = []
        for number in range(self.args.rounds):
            measure.say(f"round {number + 1} of {self.args.rounds}")
            rounds.append(self.round(src, min(size, 4 * 10**9)))
        return {"bytes": size, "rounds": rounds}

    def inspect(self):
        """Both with a warm cache: this measures parsing."""
        src = self.make("index", self.args.index_tensors)
        rounds = []
        for number in range(self.args.rounds + 1):
            measure.say(f"inspect, {number} of {self.args.rounds}")
            ours = measure.run([self.args.tool, "inspect", src])
            theirs = measure.run(
                [self.args.python, HERE / "torch_convert.py", "index", src, ""]
            )
            rounds.append(
                {
                    "ours": {
                        "seconds": ours.seconds,
                        "cpu_seconds": ours.cpu_seconds,
                        "peak_bytes": ours.peak_bytes,
                    },
                    "torch": {
                        "seconds": theirs.seconds,
                        "cpu_seconds": theirs.cpu_seconds,
                        "peak_bytes": theirs.peak_bytes,
                        **json.loads(theirs.output),
                    },
                }
            )
        return {"tensors": self.args.index_tensors, "rounds": rounds[1:]}

    def memory(self):
        """One tensor, three times as large as the model. The file is a hole."""
        size = 3 * self.args.size // 8192 * 8192
        src = self.dir / "large.safetensors"
        sharded, whole = self.dir / "large-sharded", self.dir / "large.pt"
        try:
            measure.write_hole(src, size // 8192, 4096)
            measure.say("one large tensor, to four ranks")
            reshard = self.ours("reshard", src, sharded, "--mesh", "shard=4")
            src.unlink()
            measure.say("one large tensor, to .pt")
            consolidate = self.ours("consolidate", sharded, whole)
            return {
                "bytes": size,
                "reshard": reshard,
                "consolidate": consolidate,
            }
        finally:
            for path in (src, sharded, whole):
                remove(path)

    def clean(self):
        if not self.args.keep:
            shutil.rmtree(self.dir)


def summarize_convert(result, max_memory):
    """Medians and ratios, by name of the row."""
    rounds, size = result["rounds"], result["bytes"]

    def ideal(one):
        return size / one["fio"]["read"] + size / one["fio"]["write"]

    def with_import_and_sync(run):
        return run["import"] + run["seconds"] + run["sync"]

    rows = {}
    for name in rounds[0]:
        if name == "fio":
            continue
        row = rows[name] = {
            "seconds": measure.median(rounds, lambda one: one[name]["seconds"]),
            "cpu_seconds": measure.median(
                rounds, lambda one: one[name]["cpu_seconds"]
            ),
            "peak_bytes": max(one[name]["peak_bytes"] for one in rounds),
            "to_disk": measure.median(
                rounds, lambda one: one[name]["seconds"] / ideal(one)
            ),
        }
        if name.startswith("torch"):
            row["whole_seconds"] = measure.median(
                rounds, lambda one: with_import_and_sync(one[name])
            )
            continue
        rival = name.replace("ours", "torch")
        if name.startswith("ours") and rival in rounds[0]:
            row["times_torch"] = measure.median(
                rounds, lambda one: one[rival]["seconds"] / one[name]["seconds"]
            )
            row["times_torch_whole"] = measure.median(
                rounds,
                lambda one: (
                    with_import_and_sync(one[rival]) / one[name]["seconds"]
                ),
            )
    peak = max(
        row["peak_bytes"]
        for name, row in rows.items()
        if name.startswith("ours")
    )
    return {
        "bytes": size,
        "disk_read": measure.median(rounds, lambda one: one["fio"]["read"]),
        "disk_write": measure.median(rounds, lambda one: one["fio"]["write"]),
        "disk_seconds": measure.median(rounds, ideal),
        "rows": rows,
        "peak_over_budget_bytes": peak - max_memory,
    }


def summarize_inspect(result):
    rounds = result["rounds"]
    return {
        "tensors": result["tensors"],
        "seconds": measure.median(rounds, lambda one: one["ours"]["seconds"]),
        "peak_bytes": max(one["ours"]["peak_bytes"] for one in rounds),
        "torch_seconds": measure.median(
            rounds, lambda one: one["torch"]["seconds"]
        ),
        "torch_import": measure.median(
            rounds, lambda one: one["torch"]["import"]
        ),
        "torch_peak_bytes": max(one["torch"]["peak_bytes"] for one in rounds),
        "times_torch": measure.median(
            rounds, lambda one: one["torch"]["seconds"] / one["ours"]["seconds"]
        ),
    }


def print_convert(summary):
    size = summary["bytes"]
    titles = {
        "ours pt": "dcp-convert, to .pt",
        "torch pt": "dcp_to_torch_save",
        "ours safetensors": "dcp-convert, to .safetensors",
        "torch safetensors": "dcp load + save_file",
        "ours reshard": "dcp-convert, 4 ranks to 3",
        "cp": "cp, sync",
    }
    print(
        f"A checkpoint of {size / 1e9:.2f} GB on four ranks. The disk reads "
        f"{summary['disk_read'] / 1e9:.2f} and writes "
        f"{summary['disk_write'] / 1e9:.2f} GB/s (fio):\n"
        f"read and write one after the other "
        f"{summary['disk_seconds']:.2f} s.\n"
    )
    line = "{:<30}{:>9}{:>7}{:>8}{:>10}{:>8}{:>13}"
    print(
        line.format(
            "", "seconds", "CPU s", "GB/s", "peak MiB", "/ disk", "x torch"
        )
    )
    for name, row in summary["rows"].items():
        times = (
            f"{row['times_torch']:.1f} ({row['times_torch_whole']:.1f})"
            if "times_torch" in row
            else ""
        )
        print(
            line.format(
                titles[name],
                f"{row['seconds']:.2f}",
                f"{row['cpu_seconds']:.1f}",
                f"{size / 1e9 / row['seconds']:.2f}",
                f"{row['peak_bytes'] / MIB:.0f}",
                f"{row['to_disk']:.2f}",
                times,
            )
        )
    print(
        "\nSeconds are those of whole processes with fsync; of PyTorch the "
        "conversion alone.\nIn brackets: with import and fsync, "
        f"{summary['rows']['torch pt']['whole_seconds']:.2f} s for .pt. "
        "/ disk: seconds by those of the disk."
    )


def print_inspect(summary):
    print(
        f"\nThe index of {summary['tensors']} tensors: inspect "
        f"{summary['seconds']:.2f} s, {summary['peak_bytes'] / MIB:.0f} MiB; "
        f"PyTorch imports and reads it in {summary['torch_seconds']:.2f} s "
        f"(import {summary['torch_import']:.2f} s), "
        f"{summary['torch_peak_bytes'] / MIB:.0f} MiB: "
        f"{summary['times_torch']:.1f} times as long."
    )


def print_memory(result, max_memory):
    peak = max(
        result[name]["peak_bytes"] for name in ("reshard", "consolidate")
    )
    print(
        f"\nOne tensor of {result['bytes'] / 1e9:.1f} GB: peak memory "
        f"{peak / MIB:.0f} MiB at --max-memory {max_memory / MIB:.0f} MiB."
    )


def main():
    args = parse_arguments()
    if args.rounds < 1 or args.size < MIB:
        sys.exit("bench: at least one round, and 1 MiB")
    bench = Bench(args)
    report = {
        "machine": {
            "processors": os.cpu_count(),
            "load": os.getloadavg()[0],
            "kernel": os.uname().release,
        },
        "max_memory_bytes": args.max_memory,
    }
    if "convert" not in args.skip:
        raw = bench.convert()
        report["convert"] = {
            **summarize_convert(raw, args.max_memory),
            "rounds": raw["rounds"],
        }
    if "inspect" not in args.skip:
        raw = bench.inspect()
        report["inspect"] = {**summarize_inspect(raw), "rounds": raw["rounds"]}
    if "memory" not in args.skip:
        report["memory"] = bench.memory()
    bench.clean()
    if args.json:
        print(json.dumps(report, indent=1))
        return
    if "convert" in report:
        print_convert(report["convert"])
    if "inspect" in report:
        print_inspect(report["inspect"])
    if "memory" in report:
        print_memory(report["memory"], args.max_memory)


if __name__ == "__main__":
    main()
