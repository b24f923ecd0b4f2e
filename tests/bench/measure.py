# SPDX-License-Identifier: Apache-2.0
"""The common parts of benchmarks: their options, and how they run programs, ranks
or fio and sum up seconds, memory, rates and medians."""

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

TESTING = pathlib.Path(__file__).resolve().parents[1] / "testing"
sys.path.insert(0, str(TESTING))

from held_port import held_port

# fio's requests: large, deep, direct.
FIO_BLOCK_BYTES = 4 * 2**20
FIO_FLAGS = [
    f"--bs={FIO_BLOCK_BYTES}",
    "--direct=1",
    "--iodepth=16",
    "--fallocate=none",
    "--group_reporting",
    "--output-format=json",
]
# How many jobs, each with its part of the file, and with which engine. The
# faster way counts; which one that is depends on the disk.
FIO_WAYS = [
    (1, ["--ioengine=libaio"]),
    (2, ["--ioengine=io_uring", "--fixedbufs"]),
]

UNITS = {
    "": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}

Run = collections.namedtuple("Run", "seconds cpu_seconds peak_bytes output")


def say(*words):
    print("bench:", *words, file=sys.stderr, flush=True)


def parse_size(text):
    match = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", text)
    if not match or match[2].upper() not in UNITS:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 2GB")
    return int(float(match[1]) * UNITS[match[2].upper()])


def add_options(parser, what, size="2GB"):
    """Adds --size of `what`, --rounds and --dir."""
    parser.add_argument(
        "--size",
        type=parse_size,
        default=parse_size(size),
        help=f"of {what} ({size})",
    )
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument(
        "--dir",
        type=pathlib.Path,
        metavar="FOLDER",
        default=pathlib.Path.home() / ".cache/tessera",
        help="on the disk to be measured (TESSERA_CACHE)",
    )


def size_of(path):
    """Bytes of a file, or of the files below a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def safetensors_header(tensors):
    """The head of a file with these tensors, by name."""
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header


def write_hole(path, rows, columns):
    """A bfloat16 matrix in safetensors, with elements that take no space."""
    num_bytes = 2 * rows * columns
    weight = {
        "dtype": "BF16",
        "shape": [rows, columns],
        "data_offsets": [0, num_bytes],
    }
    with open(path, "wb") as file:
        num_written = file.write(safetensors_header({"weight": weight}))
        file.truncate(num_written + num_bytes)


def drop_caches(paths=()):
    """Empties the page cache; without the right, of these files only."""
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        return
    except OSError:
        pass
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def run(command):
    """Runs to the end. Peak memory is the kernel's account of that process.

    The caller must be smaller than the program: until it executes, the child
    counts as the caller.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            raise RuntimeError(
                f"{' '.join(map(str, command))}: exit code "
                f"{process.returncode}\n{err.read().decode()}"
            )
        cpu_seconds = usage.ru_utime + usage.ru_stime
        peak_bytes = usage.ru_maxrss * 1024
        return Run(seconds, cpu_seconds, peak_bytes, out.read().decode())


def convert_once(tool, *words):
    """One run of dcp-convert, from a cold cache."""
    drop_caches()
    done = run([tool, *words, "--progress", "none", "--json"])
    outcome = json.loads(done.output)
    return {
        "seconds": done.seconds,
        "cpu_seconds": done.cpu_seconds,
        "peak_bytes": done.peak_bytes,
        "read": outcome["bytes_read"],
        "written": outcome["bytes_written"],
    }


def rival_once(command):
    """One run of a rival, from a cold cache, which prints its own seconds."""
    drop_caches()
    done = run(command)
    parts = json.loads(done.output.splitlines()[-1])
    return {
        "seconds": parts["convert"] + parts["sync"],
        "import": parts["import"],
        "peak_bytes": done.peak_bytes,
    }


def run_ranks(command, num_ranks):
    """Runs one process a rank to the end; raises when one fails."""
    common = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(held_port()),
    }
    with tempfile.TemporaryFile("w+") as log:
        ranks = [
            subprocess.Popen(
                command,
                env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            for rank in range(num_ranks)
        ]
        try:
            codes = [rank.wait(timeout=1800) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        if any(codes):
            log.seek(0)
            words = " ".join(map(str, command))
            raise RuntimeError(f"{words}: exit codes {codes}\n{log.read()}")


def fio_rate(path, num_bytes, what, num_jobs, flags):
    """Bytes per second."""
    drop_caches()
    # Whole blocks only, because direct writes must be aligned.
    part = -(-num_bytes // num_jobs // FIO_BLOCK_BYTES) * FIO_BLOCK_BYTES
    done = run(
        [
            "fio",
            "--name=disk",
            f"--filename={path}",
            f"--rw={what}",
            f"--numjobs={num_jobs}",
            f"--size={part}",
            f"--offset_increment={part}",
            "--end_fsync=1",
            *flags,
            *FIO_FLAGS,
        ]
    )
    return json.loads(done.output)["jobs"][0][what]["bw_bytes"]


def fio_rates(directory, num_bytes):
    """Bytes per second that the disk itself writes, synced, and reads."""
    path = pathlib.Path(directory) / "fio.tmp"
    try:
        return {
            what: max(fio_rate(path, num_bytes, what, *way) for way in FIO_WAYS)
            for what in ("write", "read")
        }
    finally:
        path.unlink(missing_ok=True)


def spread(values):
    """[least, largest]"""
    return [min(values), max(values)]


def figure(rounds, function):
    values = [function(one) for one in rounds]
    return {"median": statistics.median(values), "spread": spread(values)}


def median(rounds, function):
    return statistics.median(function(one) for one in rounds)


def number(entry, scale=1.0, digits=2):
    low, high = entry["spread"]
    return (
        f"{entry['median'] * scale:.{digits}f} "
        f"[{low * scale:.{digits}f}, {high * scale:.{digits}f}]"
    )


def status_bytes(name, pid="self"):
    """A line of /proc/PID/status."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def private_bytes():
    """The memory of this process, as process_memory.h measures it."""
    return status_bytes("RssAnon")


def peak_private_bytes(pid="self"):
    shared = status_bytes("RssFile", pid) + status_bytes("RssShmem", pid)
    return status_bytes("VmHWM", pid) - shared


def forget_peak(pid="self"):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
