# SPDX-License-Identifier: Apache-2.0
"""Packs what tools/gpu_check needs on another machine.

    python3 pack.py --programs FOLDER --file FILE.tar.xz

The programs are stripped. LibTorch and the libraries of CUDA are those of the
other machine's Python, glibc and libstdc++ those of its system; everything else
is linked statically, and a program that needs another library is refused.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import steps

ROOT = pathlib.Path(__file__).absolute().parents[3]
FOLDER = "tessera-gpu-check"
# The limit of what can be copied to some machines.
MAX_BYTES = 60 * 2**20
SCRIPTS = (
    "tools/gpu_check",
    "tests/fsdp/gpu/check.py",
    "tests/fsdp/gpu/compare.py",
    "tests/fsdp/gpu/ranks.py",
    "tests/fsdp/gpu/steps.py",
    "tests/bench/measure.py",
    "tests/testing/held_port.py",
    "tests/bench/torch_train.py",
    "tests/bench/train_bench.py",
    "tests/bench/train_init.py",
    "tests/fsdp/parity/checkpoints.py",
    "tests/fsdp/parity/models.py",
    "tests/fsdp/parity/parallel.py",
    "tests/fsdp/parity/torch_trainer.py",
)
THERE = re.compile(
    r"lib(torch|c10|cudart|gomp)\b.*|lib(torch|c10)_\w+\.so"
    r"|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.\d+|ld-linux-x86-64\.so\.2"
)


def libraries_of(program):
    """The names of the libraries that it asks for itself."""
    done = subprocess.run(
        ["readelf", "--dynamic", "--wide", program],
        check=True,
        capture_output=True,
        text=True,
    )
    return re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout)


def copy_program(src, dst):
    missing = [l for l in libraries_of(src) if not THERE.fullmatch(l)]
    if missing:
        sys.exit(
            f"gpu_check: {src} needs {', '.join(missing)}, which another "
            "machine may lack; link it statically"
        )
    dst.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "-o", dst, src], check=True)
    dst.chmod(0o755)


def fill(folder, programs):
    missing = steps.missing_programs(programs)
    if missing:
        sys.exit(f"gpu_check: {programs} lacks {', '.join(missing)}")
    for path in steps.PROGRAMS:
        copy_program(programs / path, folder / "programs" / path)
    for path in SCRIPTS:
        dst = folder / path
        dst.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, dst)


def pack(programs, file, max_bytes=MAX_BYTES):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / FOLDER
        fill(folder, programs)
        packed = pathlib.Path(scratch) / "packed"
        with tarfile.open(packed, "w:xz", preset=1) as archive:
            archive.add(folder, FOLDER)
        num_bytes = packed.stat().st_size
        if num_bytes > max_bytes:
            sys.exit(
                f"gpu_check: packed, the programs have {num_bytes} bytes, more "
                f"than {max_bytes}; nothing was written"
            )
        # Next to its place first, so that there is never a part of the file.
        part = file.with_name(file.name + ".part")
        shutil.copy(packed, part)
        os.replace(part, file)
    print(f"{file}: {num_bytes / 2**20:.1f} MiB")


def main():
    parser = argparse.ArgumentParser(prog="tools/gpu_check --pack")
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--file", type=pathlib.Path, required=True)
    args = parser.parse_args()
    pack(args.programs, args.file)


if __name__ == "__main__":
    main()
