# SPDX-License-Identifier: Apache-2.0
"""Makes small, deterministic checkpoints with PyTorch, on a CPU with gloo.

    python make_reference.py --out DIR [--cases a,b,...] [--list]

For every case C the directory DIR receives the checkpoint (C/, C.pt,
C.safetensors ...) and C.expected.json (tensor digests, object values, planner
paths, chunk tables). The script starts `torchrun` itself, once per world size.
The world size is in the name of a case: _ws3, or _2x2 for four ranks.
"""

import argparse
import os
import shutil
import subprocess
import sys
import warnings

import torch
import torch.distributed as dist

import harness
from reference_saving import CASES, rank0

# Each adds its cases to CASES.
import reference_states  # noqa: F401 isort:skip
import reference_dtensors  # noqa: F401 isort:skip
import reference_training  # noqa: F401 isort:skip

warnings.filterwarnings("ignore")


def run_cases(out, names):
    os.makedirs(out, exist_ok=True)
    os.chdir(out)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for n in names:
        ws, fn = CASES[n]
        if ws > 1:
            if not dist.is_initialized():
                dist.init_process_group("gloo")
        if rank0():
            shutil.rmtree(n, ignore_errors=True)
        if ws > 1:
            dist.barrier()
        fn(n)
        if rank0():
            print("made", n, flush=True)
    if dist.is_initialized():
        dist.barrier()
        harness.end_rank()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--cases", default="")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.list:
        print("\n".join(f"{n} {ws}" for n, (ws, _) in CASES.items()))
        return
    want = [c for c in (a.cases.split(",") if a.cases else CASES) if c]
    out = os.path.abspath(a.out)
    if a.worker:
        run_cases(out, want)
        return
    for ws in sorted({CASES[c][0] for c in want}):
        names = [c for c in want if CASES[c][0] == ws]
        me = os.path.abspath(__file__)
        args = [me, "--worker", "--out", out, "--cases", ",".join(names)]
        if ws == 1:
            cmd = [sys.executable] + args
        else:
            cmd = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc_per_node={ws}",
            ] + args
        env = dict(os.environ, OMP_NUM_THREADS="1")
        # A rank of PyTorch's may abort while it ends, when a thread of Gloo's
        # is still there; what it wrote is made again.
        for _ in range(2):
            r = subprocess.run(cmd, env=env)
            if not r.returncode:
                break
        else:
            sys.exit(f"world size {ws} failed")


if __name__ == "__main__":
    main()
