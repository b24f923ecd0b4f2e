# SPDX-License-Identifier: Apache-2.0
"""How much communication a step of a large model exposes, on a simulated clock;
see `--help`."""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import measure

# Llama 7B, except for the vocabulary: the tokens are bytes.
LLAMA_7B = (
    "--dim=4096",
    "--layers=32",
    "--heads=32",
    "--kv-heads=32",
    "--ffn-dim=11008",
)
LAYERS = 32
BLOCK_PARAMETERS = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
SEQUENCE = 2048
RANKS = 8
# Parallelism, and how many ranks are on one machine.
ROWS = {
    "FSDP": (("--shard=8",), 8),
    "FSDP, 2 machines": (("--shard=8",), 4),
    "HSDP 2 x 4, 2 machines": (("--replicate=2", "--shard=4"), 4),
    "TP 2 x FSDP 4": (("--tp=2", "--sp", "--shard=4"), 8),
    "1F1B of 2 x FSDP 4": (("--pp=2", "--shard=4", "--microbatches=4"), 8),
    "Interleaved1F1B of 2 x FSDP 4": (
        (
            "--pp=2",
            "--shard=4",
            "--microbatches=4",
            "--pp-schedule=interleaved",
        ),
        8,
    ),
    "CP 2 x FSDP": (("--cp=2",), 8),
}
# As cost_model.cc has them.
MEMORY_BYTES_PER_US = 0.85 * 3.35e6
LAUNCH_US = 2
GATHER_LATENCY_US = {8: 15, 4: 35}
GATHER_BYTES_PER_US = {8: 360e3, 4: 45e3}
STEPS = (2, 4)


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench overlap",
        description="Trains a Llama of 7 billion parameters on 8 simulated "
        "H100s, in bfloat16, with shapes and a clock but no numbers, and prints "
        "what a step takes, how much of it the computing stream waits, and for "
        "what; the same for the order in which PyTorch's FSDP2 issues its "
        "work. Simulated: contention for memory and multiprocessors is not.",
    )
    parser.add_argument("--tool", help=argparse.SUPPRESS, required=True)
    parser.add_argument(
        "--sequences",
        type=int,
        default=2,
        help="of %d tokens, on each rank that reads; default 2" % SEQUENCE,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--rows",
        nargs="+",
        choices=ROWS,
        default=list(ROWS),
        metavar="ROW",
        help="some of " + "; ".join(f"'{row}'" for row in ROWS),
    )
    return parser.parse_args()


def run(tool, folder, ranks, flags, machine, steps):
    """The clock of each rank at the end."""
    port = measure.held_port()
    environment = {
        **os.environ,
        "TESSERA_SIM_DEVICE": "1",
        "SIM_CLOCK": "1",
        "SIM_REPORT": "1",
        "SIM_MACHINE": str(machine),
        "SIM_WATCHDOG_S": "600",
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    command = [
        tool,
        *LLAMA_7B,
        "--data=text",
        "--device=cuda",
        "--deterministic-init",
        "--param-dtype=bfloat16",
        "--reduce-dtype=float32",
        "--optimizer=fused_adamw",
        "--checkpoint-activations",
        f"--seq-len={SEQUENCE}",
        "--log-every=1000",
        f"--steps={steps}",
        *flags,
    ]
    jobs = [
        subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    told = []
    try:
        for job in jobs:
            told.append(job.communicate()[1])
            if job.returncode != 0:
                sys.exit(
                    f"bench: a rank ended with {job.returncode}:\n"
                    f"{told[-1][-3000:]}"
                )
    finally:
        for job in jobs:
            job.kill()
    return [json.loads(re.search(r"clock: (.*)", text)[1]) for text in told]


def step_of(tool, folder, ranks, flags, machine):
    """A steady step of the rank that waits most: the difference of two runs."""
    few, many = (run(tool, folder, ranks, flags, machine, n) for n in STEPS)
    count = STEPS[1] - STEPS[0]
    steps = []
    for before, after in zip(few, many):
        idle = {
            cause: (time - before["idle_us"].get(cause, 0)) / count
            for cause, time in after["idle_us"].items()
        }
        steps.append(
            {
                "step_us": (after["now_us"] - before["now_us"]) / count,
                "busy_us": (after["busy_us"] - before["busy_us"]) / count,
                "idle_us": {c: t for c, t in idle.items() if t >= 1},
                "peak_bytes": after["peak_bytes"],
            }
        )
    return max(steps, key=lambda step: step["step_us"] - step["busy_us"])


class Stream:
    """A stream on a clock, with the times that it waited."""

    def __init__(self):
        self.now = 0
        self.waited = {}

    def wait(self, time, cause):
        if time > self.now:
            self.waited[cause] = self.waited.get(cause, 0) + time - self.now
            self.now = time

    def work(self, duration):
        self.now += duration
        return self.now


def fsdp2_idle(block_us, machine):
    """What the computing stream waits for in a step, in the order in which
    FSDP2 issues: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py. The
    root's parameters are left out. `block_us`: forward and backward of a block,
    which is computed again in backward."""
    gathered = 2 * BLOCK_PARAMETERS
    reduced = 4 * BLOCK_PARAMETERS

    def copy(read, written):
        return LAUNCH_US + (read + written) / MEMORY_BYTES_PER_US

    def collective(num_bytes):
        return (
            GATHER_LATENCY_US[machine]
            + num_bytes * (RANKS - 1) / RANKS / GATHER_BYTES_PER_US[machine]
        )

    forward_us, backward_us = block_us / 4, block_us * 3 / 4
    compute, copy_in, gathers, reductions = (Stream() for _ in range(4))
    freed = 0  # when the buffer of the gather before was copied out

    def gather():
        copy_in.wait(freed, "memory")
        gathers.wait(freed, "memory")
        copy_in.work(copy(2 * gathered / RANKS, gathered / RANKS))
        gathers.wait(copy_in.now, "copy-in")
        return gathers.work(collective(gathered))

    def use(done, duration):
        compute.wait(done, "all-gather")
        out = compute.work(copy(gathered, gathered))
        compute.work(duration)
        return out

    done = gather()
    for block in range(LAYERS):
        # The host is ahead: the next gather is issued before this one is used.
        following = gather() if block + 1 < LAYERS else None
        freed = use(done, forward_us)
        done = following
    done = gather()
    before = 0  # the end of the previous reduction, which frees the input
    for block in range(LAYERS):
        compute.wait(done, "all-gather")
        freed = compute.work(copy(gathered, gathered))
        done = gather() if block + 1 < LAYERS else None
        compute.work(backward_us)
        compute.wait(before, "reduce-scatter")
        compute.work(copy(gathered, reduced))
        reductions.wait(compute.now, "copy-in")
        before = reductions.work(collective(reduced))
    compute.wait(before, "reduce-scatter")
    return compute.waited


def measure_row(args, folder, name):
    flags, machine = ROWS[name]
    readers = RANKS
    for flag in flags:
        key, _, value = flag.partition("=")
        if key in ("--tp", "--cp", "--pp"):
            readers //= int(value)
    sequences = args.sequences * (4 if "1F1B" in name else 1)
    batch = f"--batch={sequences * readers}"
    measure.say(name)
    return step_of(args.tool, folder, RANKS, (*flags, batch), machine)


def main():
    args = parse_arguments()
    args.tool = str(pathlib.Path(args.tool).resolve())
    report = {"rows": {}, "fsdp2": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text").write_text("tessera " * 65536)
        for row in args.rows:
            report["rows"][row] = measure_row(args, folder, row)
        for row in ("FSDP", "FSDP, 2 machines"):
            if row not in report["rows"]:
                continue
            step = report["rows"][row]
            report["fsdp2"][row] = fsdp2_idle(
                step["busy_us"] / LAYERS, ROWS[row][1]
            )
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report)


def print_report(report):
    heads = ("step ms", "waits ms", "of it %", "peak GiB", "PyTorch waits ms")
    print(f"{'':<26}" + "".join(f"{head:>18}" for head in heads))
    for name, step in report["rows"].items():
        waits = step["step_us"] - step["busy_us"]
        theirs = report["fsdp2"].get(name)
        cells = [
            f"{step['step_us'] / 1e3:.1f}",
            f"{waits / 1e3:.2f}",
            f"{100 * waits / step['step_us']:.1f}",
            f"{step['peak_bytes'] / 2**30:.1f}",
            "" if theirs is None else f"{sum(theirs.values()) / 1e3:.2f}",
        ]
        print(f"{name:<26}" + "".join(f"{cell:>18}" for cell in cells))
        for cause, time in sorted(step["idle_us"].items(), key=lambda i: -i[1]):
            ours = f"{time / 1e3:.2f}"
            print(f"    {cause:<40}{ours:>22}")


if __name__ == "__main__":
    main()
