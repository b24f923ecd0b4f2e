"""Measures fsdp/checkpoint beside PyTorch, fio and memcpy; `--help`.

Every round runs both in turn, and the disk's own speed between them, so that a
change in the machine's mood meets all. Ratios are taken within a round; what
is printed is the median over rounds, and how far rounds were apart. The first
round also loads what every kind of save made, and each the other's checkpoint;
every measured load is compared with what was saved.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import typing

import measure

HERE = pathlib.Path(__file__).resolve().parent
MIB = 2**20
WHO = ("ours", "pytorch")
LAYERS = 8
VOCABULARY = 8192
# A step of training: so many products of square matrices of this width.
PRODUCTS = 16
WIDTH = 768
WINDOW_BYTES = 64 * MIB
# The variants of PyTorch: see torch_save.py.
SYNC_WAYS = ("sync, 1 threads", "sync, 2 threads")
ASYNC_WAYS = ("async", "async, kept memory")
STEP_WAYS = ("async", "overlapped", "process")


def parse_mesh(text):
    mesh = [int(part) for part in text.split("x")]
    if len(mesh) > 2 or min(mesh) < 1:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no mesh such as 3 or 2x1"
        )
    return mesh


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench save",
        description="Saves and loads the state of a model and Adam, sharded "
        "over the ranks of this machine, with fsdp/checkpoint and with PyTorch's "
        "torch.distributed.checkpoint: how long training stalls and is slowed "
        "down, when a save is durable, loads onto this and other meshes, "
        "memory; beside fio and memcpy of the same bytes. Wants about four "
        "times the size of all ranks of free disk and of memory.",
    )
    parser.add_argument(
        "--gb", type=float, default=1.0, help="of state, a rank (1)"
    )
    parser.add_argument("--ranks", type=int, default=2, help="that save (2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--repeats", type=int, default=3, help="of saves, in a round (3)"
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=10,
        help="of training before a save, and after it (10)",
    )
    parser.add_argument(
        "--onto",
        type=lambda text: [
            parse_mesh(part) for part in text.split(",") if part
        ],
        default=[[1], [3], [2, 1]],
        help="other meshes to load onto: shards, or replicas x shards "
        "(1,3,2x1)",
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=["steps", "rank0"],
        help="leave out a part (repeatable)",
    )
    parser.add_argument(
        "--dir",
        type=pathlib.Path,
        metavar="FOLDER",
        default=pathlib.Path.home() / ".cache/tessera",
        help="on the disk to be measured (TESSERA_CACHE)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of a table"
    )
    parser.add_argument("--tool", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def llama_tensors(num_bytes):
    """Names and shapes of a model that takes about this with Adam's state."""
    num_parameters = num_bytes / 12
    dim = 64
    while True:
        kv, ffn = dim // 4, dim * 11 // 4
        layer = {
            "attention.wq.weight": [dim, dim],
            "attention.wk.weight": [kv, dim],
            "attention.wv.weight": [kv, dim],
            "attention.wo.weight": [dim, dim],
            "feed_forward.w1.weight": [ffn, dim],
            "feed_forward.w2.weight": [dim, ffn],
            "feed_forward.w3.weight": [ffn, dim],
            "attention_norm.weight": [dim],
            "ffn_norm.weight": [dim],
        }
        tensors = [["tok_embeddings.weight", [VOCABULARY, dim]]]
        for index in range(LAYERS):
            tensors += [
                [f"layers.{index}.{name}", shape]
                for name, shape in layer.items()
            ]
        tensors += [
            ["norm.weight", [dim]],
            ["output.weight", [VOCABULARY, dim]],
        ]
        if sum(math.prod(shape) for _, shape in tensors) >= num_parameters:
            return tensors
        dim += 16


class Bench:

    def __init__(self, args, scratch):
        self.args = args
        self.scratch = scratch
        self.tensors = llama_tensors(args.gb * 1e9 * args.ranks)
        numel = sum(math.prod(shape) for _, shape in self.tensors)
        self.parameter_bytes = 4 * numel
        self.bytes = 12 * numel
        self.commands = {
            "ours": [args.tool],
            "pytorch": [args.python, "-B", str(HERE / "torch_save.py")],
        }
        self.checkpoints = {who: scratch / f"checkpoint-{who}" for who in WHO}

    def run(self, who, what, mesh, **spec):
        """What the ranks say: the slowest, the largest; of reads the sum."""
        path = self.scratch / "spec.json"
        out = self.scratch / "out"
        spec = {
            "tensors": self.tensors,
            "mesh": mesh,
            "scratch": str(self.scratch / "warm-up"),
            **spec,
        }
        path.write_text(json.dumps(spec))
        num_ranks = math.prod(mesh)
        command = [*self.commands[who], what, str(path), str(out)]
        measure.run_ranks(command, num_ranks)
        return merge_ranks(
            [
                json.loads((self.scratch / f"out.{rank}.json").read_text())
                for rank in range(num_ranks)
            ]
        )

    def save(self, result, check):
        for who in WHO:
            result[who]["save"] = self.run(
                who,
                "save",
                [self.args.ranks],
                path=str(self.checkpoints[who]),
                repeats=self.args.repeats,
                check=check,
            )

    def load(self, result):
        for mesh in ([self.args.ranks], *self.args.onto):
            for who in WHO:
                path = str(self.checkpoints[who])
                result[who][load_name(mesh)] = self.run(
                    who, "load", mesh, path=path
                )

    def exchange(self):
        """Each loads what the other saved, and compares it."""
        for who, other in (WHO, WHO[::-1]):
            path = str(self.checkpoints[other])
            self.run(who, "load", [self.args.ranks], path=path)

    def steps(self, result):
        """With so many ranks, and with half as many: more room to write."""
        path = str(self.scratch / "steps")
        for num_ranks in step_ranks(self.args.ranks):
            for who in WHO:
                result[who][f"steps {num_ranks}"] = self.run(
                    who,
                    "steps",
                    [num_ranks],
                    tensors=llama_tensors(self.args.gb * 1e9 * num_ranks),
                    path=path,
                    repeats=self.args.repeats,
                    steps=self.args.steps,
                    products=PRODUCTS,
                    width=WIDTH,
                    ways=STEP_WAYS,
                )

    def rank0(self, result):
        path = self.scratch / "full.pt"
        self.run("pytorch", "full", [1], path=str(path))
        for who in WHO:
            result[who]["rank0"] = self.run(
                who,
                "rank0",
                [self.args.ranks],
                path=str(path),
                window_bytes=WINDOW_BYTES,
            )
        path.unlink()

    def round(self, index):
        result = {"ours": {}, "pytorch": {}}
        fio = [measure.fio_rates(self.scratch, self.bytes)]
        self.save(result, check=index == 0)
        fio.append(measure.fio_rates(self.scratch, self.bytes))
        self.load(result)
        if index == 0:
            self.exchange()
        for path in self.checkpoints.values():
            shutil.rmtree(path)
        result["fio"] = {
            what: self.bytes / statistics.mean(rates[what] for rates in fio)
            for what in ("write", "read")
        }
        if "rank0" not in self.args.skip:
            self.rank0(result)
        if "steps" not in self.args.skip:
            self.steps(result)
        return result


def merge_ranks(ranks):
    """One value for those of all ranks, at each place of a tree."""
    first = ranks[0]
    if isinstance(first, list):
        return [merge_ranks(values) for values in zip(*ranks)]
    if not isinstance(first, dict):
        return max(ranks)
    summed = ("bytes", "read_bytes", "disk_bytes")
    return {
        key: (sum if key in summed else merge_ranks)(
            [rank[key] for rank in ranks]
        )
        for key in first
    }


def step_ranks(num_ranks):
    return sorted({num_ranks, max(num_ranks // 2, 1)}, reverse=True)


def load_name(mesh):
    return "load " + "x".join(map(str, mesh))


def median_of(runs, key):
    return statistics.median(run[key] for run in runs)


def most(runs, key):
    return max(run[key] for run in runs)


def later(runs):
    """Without the first, when there is more."""
    return runs[1:] or runs


def copy_seconds(runs):
    return statistics.median(
        seconds
        for run in runs
        for seconds in (run["memcpy"], run["memcpy_after"])
    )


def slowdown(runs):
    """By how much steps take longer while a save is under way, 0.01 = 1 %."""
    return statistics.median(
        run["saving"] / run["steps"] / ((run["before"] + run["after"]) / 2) - 1
        for run in runs
    )


def lost_seconds(runs):
    """What a save costs training."""
    return statistics.median(
        run["saving"] - run["steps"] * (run["before"] + run["after"]) / 2
        for run in runs
    )


@dataclasses.dataclass
class Row:
    """A line of the table: functions of a round."""

    label: str
    unit: str
    ours: typing.Callable
    pytorch: typing.Callable  # as it is by default
    best: typing.Callable = None  # the least of what it can be told
    floor: typing.Callable = None  # what nothing can beat
    aim: float = (
        None  # ours at most so many times the floor, or at most so much
    )

    def summarize(self, rounds):
        columns = {"ours": self.ours, "pytorch": self.pytorch}
        rival = self.best or self.pytorch
        if self.best:
            columns["best"] = self.best
        if self.floor:
            columns["floor"] = self.floor
            columns["to_floor"] = lambda one: self.ours(one) / self.floor(one)
        # Differences and amounts near zero have no ratios.
        if self.unit == "s":
            columns["times_pytorch"] = lambda one: rival(one) / self.ours(one)
        row = {
            name: measure.figure(rounds, function)
            for name, function in columns.items()
        }
        return {"unit": self.unit, "aim": self.aim, **row}


def save_rows():
    def ours(one, way):
        return one["ours"]["save"][way]

    def theirs(one, ways, pick, key):
        return min(
            median_of(pick(one["pytorch"]["save"][way]), key) for way in ways
        )

    def first(runs):
        return runs[:1]

    for label, pick, aim in (
        ("stall, first async_save", first, None),
        ("stall, later ones", later, 1.1),
    ):
        yield Row(
            label,
            "s",
            lambda one, pick=pick: median_of(pick(ours(one, "async")), "stall"),
            lambda one, pick=pick: theirs(one, ASYNC_WAYS[:1], pick, "stall"),
            lambda one, pick=pick: theirs(one, ASYNC_WAYS, pick, "stall"),
            lambda one: copy_seconds(ours(one, "async")),
            aim,
        )
    yield Row(
        "save, durable",
        "s",
        lambda one: median_of(ours(one, "sync"), "durable"),
        lambda one: theirs(one, SYNC_WAYS[:1], list, "durable"),
        lambda one: theirs(one, SYNC_WAYS, list, "durable"),
        lambda one: one["fio"]["write"],
        1.1,
    )
    yield Row(
        "async_save, durable",
        "s",
        lambda one: median_of(later(ours(one, "async")), "durable"),
        lambda one: theirs(one, ASYNC_WAYS[:1], later, "durable"),
        lambda one: theirs(one, ASYNC_WAYS, later, "durable"),
        lambda one: one["fio"]["write"],
        1.1,
    )
    for label, way, rival in (
        ("memory, save", "sync", SYNC_WAYS[0]),
        ("memory, async_save", "async", ASYNC_WAYS[0]),
    ):
        yield Row(
            label,
            "MiB",
            lambda one, way=way: most(ours(one, way), "added_bytes"),
            lambda one, rival=rival: most(
                one["pytorch"]["save"][rival], "added_bytes"
            ),
        )


def step_rows(num_ranks):
    name = f"steps {num_ranks}"
    for label, unit, value, aim in (
        ("slowdown while saving", "%", slowdown, 0.035),
        ("lost by a save", "s lost", lost_seconds, None),
    ):
        yield Row(
            f"{label}, {num_ranks} training",
            unit,
            lambda one, value=value: value(one["ours"][name]["overlapped"]),
            lambda one, value=value: value(one["pytorch"][name]["async"]),
            lambda one, value=value: min(
                value(one["pytorch"][name][way]) for way in STEP_WAYS
            ),
            aim=aim,
        )


def load_rows(mesh, total_bytes):
    name = load_name(mesh)
    label = f"load onto {name.split()[1]}"

    def of(who, kind, key):
        return lambda one: one[who][name][kind][0][key]

    def amplification(who):
        return lambda one: of(who, "cold", "read_bytes")(one) / total_bytes

    yield Row(
        f"{label}, cold",
        "s",
        of("ours", "cold", "seconds"),
        of("pytorch", "cold", "seconds"),
        floor=lambda one: one["fio"]["read"],
        aim=1.1,
    )
    yield Row(
        f"{label}, cached",
        "s",
        of("ours", "warm", "seconds"),
        of("pytorch", "warm", "seconds"),
    )
    yield Row(
        f"{label}, read / needed",
        "x",
        amplification("ours"),
        amplification("pytorch"),
        aim=1.02,
    )
    yield Row(
        f"{label}, memory",
        "MiB",
        of("ours", "cold", "added_bytes"),
        of("pytorch", "cold", "added_bytes"),
    )


def rank0_rows():
    for label, unit, key in (
        ("file loaded by rank 0 for all", "s", "seconds"),
        ("file loaded by rank 0, memory", "MiB", "added_bytes"),
    ):
        yield Row(
            label,
            unit,
            lambda one, key=key: one["ours"]["rank0"]["rank0"][0][key],
            lambda one, key=key: one["pytorch"]["rank0"]["rank0"][0][key],
        )


def summarize(rounds, bench):
    args = bench.args
    rows = [*save_rows()]
    if "steps" not in args.skip:
        for num_ranks in step_ranks(args.ranks):
            rows += step_rows(num_ranks)
    for mesh in ([args.ranks], *args.onto):
        rows += load_rows(mesh, bench.bytes)
    if "rank0" not in args.skip:
        rows += rank0_rows()
    return {row.label: row.summarize(rounds) for row in rows}


UNITS = {
    # Scale, digits.
    "s": (1, 2),
    "s lost": (1, 2),
    "MiB": (1 / MIB, 0),
    "%": (100, 1),
    "x": (1, 3),
}


def aim_text(row):
    if row["aim"] is None:
        return ""
    scale = 1 if "to_floor" in row else UNITS[row["unit"]][0]
    return f"{row['aim'] * scale:g}"


def print_report(report):
    machine = report["machine"]
    print(
        f"{report['ranks']} ranks, {report['bytes'] / 1e9:.2f} GB of state in "
        f"{report['tensors']} tensors; {machine['processors']} processors, "
        f"load {machine['load']:.1f}.\nMedians of {len(report['rounds'])} "
        "rounds [least, largest].\n"
    )
    line = "{:<36}{:<7}{:>21}{:>21}{:>21}{:>18}{:>21}{:>6}{:>20}"
    print(
        line.format(
            "",
            "",
            "ours",
            "PyTorch",
            "its best",
            "fio or memcpy",
            "ours / that",
            "aim",
            "best / ours",
        )
    )
    for label, row in report["rows"].items():
        scale, digits = UNITS[row["unit"]]
        cells = [
            measure.number(row[name], scale, digits) if name in row else ""
            for name in ("ours", "pytorch", "best", "floor")
        ]
        ratios = [
            measure.number(row[name]) if name in row else ""
            for name in ("to_floor", "times_pytorch")
        ]
        text = line.format(
            label, row["unit"], *cells, ratios[0], aim_text(row), ratios[1]
        )
        print(text.rstrip())
    print(
        "\nIts best: of save with one or two threads; of async_save with its "
        "own stager, and with one that keeps\nits memory; of steps also with "
        "staging in the background until the optimizer's step, and saving by "
        "a process.\nA stall ends when tensors may change; all ranks copy at "
        "once, for memcpy too. PyTorch syncs its files\n(sync_files, its "
        "default). Memory is the most private memory that a rank takes for "
        "it beyond the state."
    )
    if "file loaded by rank 0 for all" in report["rows"]:
        print(
            "The file that rank 0 loads has "
            f"{report['parameter_bytes'] / MIB:.0f} MiB of parameters; our "
            f"window is {WINDOW_BYTES // MIB} MiB; PyTorch maps the file."
        )


def main():
    args = parse_arguments()
    if (
        min(args.rounds, args.ranks, args.repeats, args.steps) < 1
        or args.gb <= 0
    ):
        sys.exit(
            "bench: at least one rank, round, repeat and step, and some GB"
        )
    args.dir.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    scratch = pathlib.Path(
        tempfile.mkdtemp(prefix="tessera-save-", dir=args.dir)
    )
    try:
        bench = Bench(args, scratch)
        rounds = []
        for index in range(args.rounds):
            measure.say(f"round {index + 1} of {args.rounds}")
            rounds.append(bench.round(index))
    finally:
        shutil.rmtree(scratch)
    report = {
        "machine": {
            "processors": os.cpu_count(),
            "load": load,
            "kernel": os.uname().release,
        },
        "ranks": args.ranks,
        "bytes": bench.bytes,
        "parameter_bytes": bench.parameter_bytes,
        "tensors": 3 * len(bench.tensors),
        "rows": summarize(rounds, bench),
        "rounds": rounds,
    }
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report)


if __name__ == "__main__":
    main()
