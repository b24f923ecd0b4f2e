# SPDX-License-Identifier: Apache-2.0
"""Compares fsdp/checkpoint with PyTorch, fio and memcpy; see `--help`.

Every round runs both in turn, and the disk's own speed between them, so that a
change in the machine's speed affects all. Ratios are taken within a round; the
printed figure is the median over rounds, and how far rounds were apart. The first
round also loads every kind of save, and each loads the other's checkpoint;
every measured load is compared with the saved state.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import measure
from save_report import (
    STEP_WAYS,
    WINDOW_BYTES,
    load_name,
    print_report,
    step_ranks,
    summarize,
)

HERE = pathlib.Path(__file__).resolve().parent
WHO = ("ours", "pytorch")
LAYERS = 8
VOCABULARY = 8192
# A step of training: this many products of square matrices of this width.
PRODUCTS = 16
WIDTH = 768


def parse_mesh(text):
    mesh = [int(part) for part in text.split("x")]
    if len(mesh) > 2 or min(mesh) < 1:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a mesh such as 3 or 2x1"
        )
    return mesh


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench save",
        description="Saves and loads the state of a model and Adam, sharded "
        "over the ranks of this machine, with fsdp/checkpoint and with PyTorch's "
        "torch.distributed.checkpoint: how long training stalls and is slowed "
        "down, when a save is durable, loads onto this and other meshes, "
        "memory; compared with fio and memcpy of the same bytes. Requires "
        "free disk and memory of about four times the size of all ranks.",
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
        """Joins the ranks' reports: the slowest, the largest, the sum of reads."""
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
        """Each loads the other's save, and compares it."""
        for who, other in (WHO, WHO[::-1]):
            path = str(self.checkpoints[other])
            self.run(who, "load", [self.args.ranks], path=path)

    def steps(self, result):
        """With all ranks, and with half of them, which have more room to write."""
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
    """Joins the values of all ranks at each place of a tree."""
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
