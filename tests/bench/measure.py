"""Runs a program or fio: seconds, processor seconds, peak memory, rates."""

import collections
import json
import os
import pathlib
import subprocess
import tempfile
import time

# What fio does: large, deep, direct. Nothing tried on one disk was faster.
FIO_FLAGS = [
    "--bs=4M",
    "--direct=1",
    "--ioengine=libaio",
    "--iodepth=16",
    "--fallocate=none",
    "--output-format=json",
]

Run = collections.namedtuple("Run", "seconds cpu_seconds peak_bytes output")


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


def fio_rates(directory, num_bytes):
    """Bytes per second that the disk itself writes, synced, and reads."""
    path = pathlib.Path(directory) / "fio.tmp"
    rates = {}
    try:
        for what in ("write", "read"):
            drop_caches()
            done = run(
                [
                    "fio",
                    "--name=disk",
                    f"--filename={path}",
                    f"--size={num_bytes}",
                    f"--rw={what}",
                    "--end_fsync=1",
                    *FIO_FLAGS,
                ]
            )
            rates[what] = json.loads(done.output)["jobs"][0][what]["bw_bytes"]
    finally:
        path.unlink(missing_ok=True)
    return rates
