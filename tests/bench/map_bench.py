# SPDX-License-Identifier: Apache-2.0
"""Compares dcp-convert --map with the programs that turn models between
spellings, and with itself without a mapping; see `--help`.

Every round runs all three in turn, with the page cache dropped before each.
Ratios are taken within a round; the printed figure is the median over rounds.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil

import measure

HERE = pathlib.Path(__file__).resolve().parent
MIB = 2**20

Direction = collections.namedtuple("Direction", "src dst to rival")

# The first of each pair begins with what transformers wrote, and the second
# with what the first's rival made of it.
PAIRS = {
    "llama": [
        Direction("hf", "torchtitan", "dcp", "titan_from_hf"),
        Direction("torchtitan", "hf", "safetensors", "titan_to_hf"),
        Direction("hf", "megatron_stacked", "dcp", "bridge_from_hf"),
        Direction("megatron_stacked", "hf", "safetensors", "bridge_to_hf"),
    ],
    "qwen3-moe": [
        Direction("hf", "hf5", "safetensors", "load_experts"),
        Direction("hf5", "hf", "safetensors", "save_experts"),
        Direction("hf", "torchtitan", "dcp", "titan_from_hf"),
        Direction("torchtitan", "hf", "safetensors", "titan_to_hf"),
    ],
    "gpt2": [
        Direction("hf", "plain", "safetensors", "load_conv1d"),
        Direction("plain", "hf", "safetensors", "save_conv1d"),
    ],
}
RIVALS = {
    "titan": "TorchTitan",
    "bridge": "Megatron-Bridge",
    "load": "transformers",
    "save": "transformers",
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench map",
        description="Generates models and converts them between spellings with "
        "dcp-convert --map, with TorchTitan's scripts, Megatron-Bridge or "
        "transformers, and, for comparison, with dcp-convert without a mapping. "
        "Requires about five times the size of free disk, three times the size "
        "of memory for the others, and root to drop the page cache.",
    )
    measure.add_options(parser, "each model")
    parser.add_argument(
        "--max-memory",
        type=measure.parse_size,
        metavar="SIZE",
        default=256 * MIB,
        help="for dcp-convert (256MiB)",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=list(PAIRS),
        help="measure only this model (repeatable)",
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=["models", "memory", "shapes", "rivals"],
        help="leave out a part (repeatable): the models, one matrix as large "
        "as a model, or the shapes of DeepSeek V3 on simulated storage; or "
        "the other programs",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of tables"
    )
    for name in ("--tool", "--shapes", "--python", "--packages"):
        parser.add_argument(name, required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


class Bench:
    def __init__(self, args):
        self.args = args
        self.dir = args.dir / "tessera-bench-map"
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)

    def ours(self, verb, src, dst, to, options=()):
        memory = ["--max-memory", str(self.args.max_memory)]
        return measure.convert_once(
            self.args.tool, verb, src, dst, "--to", to, *memory, *options
        )

    def theirs(self, kind, src, dst, config):
        packages = f"{self.args.packages}/{kind.partition('_')[0]}"
        return measure.rival_once(
            [
                "env",
                f"PYTHONPATH={packages}",
                self.args.python,
                "-B",
                HERE / "map_rivals.py",
                kind,
                src,
                dst,
                config,
            ]
        )

    def round(self, model, way, src, config, mapped):
        """Everything once. Wrong results are refused."""
        plain, theirs = self.dir / "plain", self.dir / "theirs"
        shutil.rmtree(mapped, ignore_errors=True)
        mapping = f"{model}-{way.src}-to-{way.dst}"
        verb = "convert" if way.to == "dcp" else "consolidate"
        one = {
            "mapped": self.ours(
                "convert",
                src,
                mapped,
                way.to,
                ["--map", mapping, "--config", config],
            ),
            "plain": self.ours(
                verb, src, plain, way.to, ["--drop-non-tensors"]
            ),
        }
        shutil.rmtree(plain)
        if "rivals" in self.args.skip:
            measure.run(
                [self.args.tool, "diff", src, mapped, "--tensors-only"]
                + ["--map", mapping, "--config", config]
            )
            return one
        one["theirs"] = self.theirs(way.rival, src, theirs, config)
        measure.run([self.args.tool, "diff", mapped, theirs, "--tensors-only"])
        # The way back begins with the files that that program wrote.
        shutil.rmtree(mapped)
        theirs.rename(mapped)
        return one

    def direction(self, model, way, src, config, mapped):
        rounds = []
        for number in range(self.args.rounds):
            measure.say(
                f"{model}, {way.src} to {way.dst}, "
                f"round {number + 1} of {self.args.rounds}"
            )
            rounds.append(self.round(model, way, src, config, mapped))
        return {
            "model": model,
            "from": way.src,
            "to": way.dst,
            "rival": RIVALS[way.rival.partition("_")[0]],
            "bytes": measure.size_of(src),
            "rounds": rounds,
        }

    def model(self, model):
        src = self.dir / "src"
        measure.say(f"generating {model}")
        measure.run(
            [
                self.args.python,
                HERE / "make_model.py",
                model,
                src,
                str(self.args.size),
            ]
        )
        config = src / "config.json"
        results = []
        for way in PAIRS[model]:
            forth = way.src == "hf"
            results.append(
                self.direction(
                    model,
                    way,
                    src if forth else self.dir / "forth",
                    config,
                    self.dir / ("forth" if forth else "back"),
                )
            )
        disk = measure.fio_rates(self.dir, min(self.args.size, 2 * 10**9))
        for name in ("src", "forth", "back"):
            shutil.rmtree(self.dir / name)
        return {"disk": disk, "directions": results}

    def memory(self):
        """One matrix to be transposed, as large as the model. The file is a
        hole."""
        src, dst = self.dir / "large", self.dir / "transposed"
        src.mkdir()
        rows = 16384
        columns = self.args.size // (2 * rows)
        measure.write_hole(src / "model.safetensors", rows, columns)
        rules = src / "rules.yaml"
        rules.write_text(
            "tessera-mapping: 1\nname: one\nsides:\n  a:\n  b:\nrules:\n"
            "- {a: {weight: r c}, b: {weight: c r}}\n"
        )
        measure.say("one matrix, transposed")
        options = ["--map-file", rules, "--from-side", "a", "--to-side", "b"]
        done = self.ours("convert", src, dst, "safetensors", options)
        shutil.rmtree(src)
        shutil.rmtree(dst)
        return {"bytes": 2 * rows * columns, **done}

    def shapes(self):
        measure.say("the shapes of DeepSeek V3")
        return {
            to: [
                json.loads(measure.run([self.args.shapes, f"--to={to}"]).output)
                for _ in range(self.args.rounds)
            ]
            for to in ("torchtitan", "megatron_dist")
        }

    def run(self):
        report = {"load": os.getloadavg()[0]}
        try:
            if "models" not in self.args.skip:
                report["models"] = {
                    model: self.model(model)
                    for model in self.args.only or PAIRS
                }
            if "memory" not in self.args.skip:
                report["memory"] = self.memory()
            if "shapes" not in self.args.skip:
                report["shapes"] = self.shapes()
            return report
        finally:
            shutil.rmtree(self.dir)


def summarize(result):
    rounds = result["rounds"]

    def figure(function):
        return measure.figure(rounds, function)

    row = {
        name: result[name] for name in ("model", "from", "to", "rival", "bytes")
    }
    row |= {
        "seconds": figure(lambda one: one["mapped"]["seconds"]),
        "cpu_seconds": figure(lambda one: one["mapped"]["cpu_seconds"]),
        "plain_seconds": figure(lambda one: one["plain"]["seconds"]),
        "to_plain": figure(
            lambda one: one["mapped"]["seconds"] / one["plain"]["seconds"]
        ),
        "read_ratio": rounds[0]["mapped"]["read"] / result["bytes"],
        "peak_bytes": max(one["mapped"]["peak_bytes"] for one in rounds),
    }
    if "theirs" in rounds[0]:
        row |= {
            "rival_seconds": figure(lambda one: one["theirs"]["seconds"]),
            "rival_import": figure(lambda one: one["theirs"]["import"]),
            "times": figure(
                lambda one: one["theirs"]["seconds"] / one["mapped"]["seconds"]
            ),
            "times_whole": figure(
                lambda one: (
                    (one["theirs"]["import"] + one["theirs"]["seconds"])
                    / one["mapped"]["seconds"]
                )
            ),
            "rival_peak_bytes": max(
                one["theirs"]["peak_bytes"] for one in rounds
            ),
        }
    return row


def print_models(models):
    line = "{:<36}{:>6}{:>9}{:>7}{:>19}{:>6}{:>18}{:>17}{:>14}{:>6}{:>8}"
    print(
        line.format(
            "",
            "GB",
            "seconds",
            "CPU s",
            "x without map",
            "read",
            "theirs",
            "",
            "x",
            "MiB",
            "theirs",
        )
    )
    for model in models.values():
        for result in model["directions"]:
            row = summarize(result)
            theirs = ("", "", "", "")
            if "times" in row:
                theirs = (
                    f"{row['rival_seconds']['median']:.2f} "
                    f"(+ {row['rival_import']['median']:.2f})",
                    row["rival"],
                    f"{row['times']['median']:.1f} "
                    f"({row['times_whole']['median']:.1f})",
                    f"{row['rival_peak_bytes'] / MIB:.0f}",
                )
            print(
                line.format(
                    f"{row['model']}, {row['from']} to {row['to']}",
                    f"{row['bytes'] / 1e9:.2f}",
                    f"{row['seconds']['median']:.2f}",
                    f"{row['cpu_seconds']['median']:.1f}",
                    measure.number(row["to_plain"]),
                    f"{row['read_ratio']:.2f}",
                    *theirs[:3],
                    f"{row['peak_bytes'] / MIB:.0f}",
                    theirs[3],
                )
            )
    disks = [model["disk"] for model in models.values()]
    print(
        "\nThe disk reads "
        f"{measure.figure(disks, lambda one: one['read'])['median'] / 1e9:.2f} "
        "and writes "
        f"{measure.figure(disks, lambda one: one['write'])['median'] / 1e9:.2f} "
        "GB/s (fio). Seconds of dcp-convert are those of\nthe whole process with "
        "fsync. In brackets: the rival's imports, and the ratio with\nthem."
    )


def print_memory(result, max_memory):
    print(
        f"\nOne matrix of {result['bytes'] / 1e9:.1f} GB, transposed: "
        f"{result['seconds']:.0f} s, read {result['read'] / result['bytes']:.1f} "
        f"times, peak memory {result['peak_bytes'] / MIB:.0f} MiB at "
        f"--max-memory {max_memory / MIB:.0f} MiB."
    )


def print_shapes(shapes):
    line = "{:<24}{:>14}{:>8}{:>9}{:>9}{:>9}{:>9}{:>13}"
    titles = ("tensors", "pieces", "open, s", "map, s", "files, s", "all, s")
    some = next(iter(shapes.values()))[0]
    size = f"{some['num_bytes'] / 1e12:.2f} TB"
    print("\n" + line.format(f"{size}, to", *titles, "memory, MiB"))
    for to, rounds in shapes.items():

        def stage(name, rounds=rounds):
            return measure.figure(rounds, lambda one: one[name])["median"]

        first = rounds[0]
        print(
            line.format(
                to,
                f"{first['num_sources']} > {first['num_tensors']}",
                first["num_pieces"],
                f"{stage('open_seconds'):.2f}",
                f"{stage('map_seconds'):.2f}",
                f"{stage('output_seconds'):.2f}",
                f"{stage('seconds'):.2f}",
                f"{stage('peak_bytes') / MIB:.0f}",
            )
        )
    print("Seconds of a processor; DeepSeek V3 on simulated storage.")


def main():
    args = parse_arguments()
    report = Bench(args).run()
    if args.json:
        print(json.dumps(report, indent=1))
        return
    if "models" in report:
        print_models(report["models"])
    if "memory" in report:
        print_memory(report["memory"], args.max_memory)
    if "shapes" in report:
        print_shapes(report["shapes"])
    print(f"\nLoad of the machine at the beginning: {report['load']:.1f}.")


if __name__ == "__main__":
    main()
