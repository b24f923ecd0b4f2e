# SPDX-License-Identifier: Apache-2.0
"""Trains with fsdp and with Python's FSDP2 on one rank, for tools/gpu_check.

    python compare.py TRAIN_BENCH cpu|cuda

Prints one line of JSON, as gpu_steps does. What differs between sharded and
unsharded training is what the engine costs. Medians over rounds.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import train_bench

# By device: the model, the rounds, and the steps that are measured in each.
WORK = {
    "cpu": ({"dim": 64, "num_layers": 2, "ffn_dim": 176, "length": 33}, 1, 5),
    "cuda": (
        {
            "dim": 1024,
            "num_layers": 8,
            "ffn_dim": 2816,
            "num_heads": 16,
            "num_kv_heads": 8,
            "length": 513,
        },
        2,
        20,
    ),
}
PREFIXES = {"ours": "", "pytorch": "pytorch_"}


def figures(rounds):
    """Of rounds as train_bench's Bench.round returns them, on one rank."""
    result = {}
    for who, prefix in PREFIXES.items():

        def median(function):
            return statistics.median(function(one) for one in rounds)

        def passes_ms(one, way):
            return one[way][who]["passes_seconds"] * 1e3

        for key in ("tokens_per_second", "device_peak_bytes"):
            result[prefix + key] = median(lambda one: one["1"][who][key])
        result[prefix + "unsharded_tokens_per_second"] = median(
            lambda one: one["1 unsharded"][who]["tokens_per_second"]
        )
        result[prefix + "overhead_ms"] = median(
            lambda one: passes_ms(one, "1") - passes_ms(one, "1 unsharded")
        )
        result[prefix + "last_loss"] = rounds[0]["1"][who]["loss"]
    return result


def main():
    program, device = sys.argv[1:]
    shape, num_rounds, num_steps = WORK[device]
    args = argparse.Namespace(
        tool=program,
        python=sys.executable,
        steps=num_steps,
        optimizer="fused_adamw",
        ranks=[1],
    )
    with tempfile.TemporaryDirectory() as scratch:
        bench = train_bench.Bench(args, pathlib.Path(scratch), device=device)
        folder = bench.prepare("compared", shape)
        # Each round refuses losses that differ.
        rounds = [bench.round(folder) for _ in range(num_rounds)]
    print(json.dumps({"ok": True, "problems": [], "figures": figures(rounds)}))


if __name__ == "__main__":
    main()
