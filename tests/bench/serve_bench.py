# SPDX-License-Identifier: Apache-2.0
"""Compares dcp-server with plain gRPC, cp and dcp-convert; see `--help`.

Rivals take turns within a round, and go first in turn, so that a change in the
machine's speed affects all. Ratios are taken within a round; the printed figure is
the median over rounds, and how far rounds were apart.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request

import measure
from serve_report import MANY, MIB, print_report, summarize

TENSOR_BYTES = 64 * MIB
COLUMNS = 4096


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench serve",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Starts dcp-server on a checkpoint that it generates, and reads from it over
loopback. Prints a table in Markdown:

  streams   1, 2, 8 and 32 ranks with a shard each, and 32 with a copy each, from
            the page cache, compared with a gRPC server that only sends the
            same bytes out of memory, in messages of the same size. Aimed at:
            0.9 of its rate.
  memory    the most private memory of the daemon during each, compared with
            --max-memory, which bounds its payload. Aimed at: 1 GiB more at most.
  read once what the daemon reads from the disk for 32 copies, compared with
            what it reads for one. Aimed at: 1.3 times as much.
  cold      one stream from the disk, compared with cp onto the same disk
  jobs      a reshard by dcp-convert --server, compared with dcp-convert
            itself, from a cold cache, synced. Aimed at: 3 % more time.

Requires about four times --size of free disk, --size of free memory for the
page cache, and root to drop it.""",
    )
    measure.add_options(parser, "the checkpoint", "1GB")
    parser.add_argument(
        "--ranks",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[1, 2, 8, MANY],
        help="numbers of ranks with a shard each (1,2,8,32)",
    )
    parser.add_argument(
        "--least-seconds",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="streams are repeated until they took so long (2)",
    )
    parser.add_argument(
        "--max-memory",
        type=measure.parse_size,
        metavar="SIZE",
        default=2048 * MIB,
        help="of the daemon (2GiB)",
    )
    parser.add_argument(
        "--job-memory",
        type=measure.parse_size,
        metavar="SIZE",
        default=256 * MIB,
        help="of a reshard, on both sides (256MiB)",
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=["streams", "once", "jobs"],
        help="leave out a part: streams with their memory, read once and cold, "
        "jobs (repeatable)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of the table"
    )
    for name in ("--tool", "--server", "--client"):
        parser.add_argument(name, required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def write_model(path, num_bytes):
    """Float tensors in safetensors' format, with bytes that differ everywhere."""
    num_tensors = max(num_bytes // TENSOR_BYTES, 1)
    rows = TENSOR_BYTES // 4 // COLUMNS
    tensors = {
        f"layers.{index}.weight": {
            "dtype": "F32",
            "shape": [rows, COLUMNS],
            "data_offsets": [index * TENSOR_BYTES, (index + 1) * TENSOR_BYTES],
        }
        for index in range(num_tensors)
    }
    with open(path, "wb") as file:
        file.write(measure.safetensors_header(tensors))
        for _ in range(num_tensors):
            file.write(os.urandom(TENSOR_BYTES))
        file.flush()
        os.fsync(file.fileno())
    return num_tensors * TENSOR_BYTES


class Process:
    """A server on loopback; `find` reads the address from the output."""

    def __init__(self, command, stream, find):
        pipes = {"stdin": subprocess.PIPE, stream: subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)
        self.pid = self.process.pid
        output = getattr(self.process, stream)
        seen = []
        for line in output:
            seen.append(line)
            self.address = find(line)
            if self.address:
                break
        else:
            raise RuntimeError(f"{command[0]} does not start\n{''.join(seen)}")
        # Otherwise it would stop when the pipe is full.
        self.reader = threading.Thread(target=output.read, daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.reader.join()


def raw_server(args, file):
    return Process([args.client, "raw", str(file)], "stdout", str.strip)


def address_in_log(line):
    """The address in a line of the daemon's log that has one; or None."""
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return fields.get("address") if fields.get("event") == "start" else None


def daemon(args, scratch):
    metrics = measure.held_port()
    process = Process(
        [
            args.server,
            f"--root={scratch / 'root'}",
            f"--state-dir={scratch / 'state'}",
            "--listen=127.0.0.1:0",
            f"--metrics-listen=127.0.0.1:{metrics}",
            f"--max-memory={args.max_memory}",
            # All ranks are one client here.
            *("--max-connections-per-address=4000", "--max-streams=4000"),
            "--max-streams-per-client=4000",
        ],
        "stderr",
        address_in_log,
    )
    process.metrics = f"http://127.0.0.1:{metrics}/metrics"
    return process


def bytes_read(server):
    """Bytes of payload that the daemon has read so far, by its own metrics."""
    with urllib.request.urlopen(server.metrics) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith('tessera_bytes_total{what="read"}'):
                return float(line.split()[-1])
    return 0.0


def bytes_from_disk(server):
    """The same, as the kernel counts it: without bytes from the page cache."""
    for line in pathlib.Path(f"/proc/{server.pid}/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return float(line.split()[1])
    return 0.0


class Bench:
    def __init__(self, args, scratch):
        self.args = args
        self.scratch = scratch
        root = scratch / "root"
        root.mkdir()
        self.model = scratch / "model.safetensors"
        self.source = root / "source"
        measure.say("generating a checkpoint")
        self.bytes = write_model(self.model, args.size)
        measure.run(
            [args.tool, "reshard", self.model, self.source, "--mesh", "shard=4"]
        )

    def read(self, server, way, num_ranks, axis):
        """Seconds, and bytes of all ranks."""
        what = self.bytes if way == "raw" else self.source
        done = measure.run(
            [
                self.args.client,
                "read",
                way,
                server.address,
                str(what),
                str(num_ranks),
                axis,
            ]
        )
        told = json.loads(done.output)
        expected = self.bytes * (num_ranks if axis == "replicate" else 1)
        if way == "raw" and axis == "shard":  # equal shares
            expected -= expected % num_ranks
        if told["bytes"] != expected:
            raise RuntimeError(f"{way}: {told['bytes']} bytes, not {expected}")
        return told

    def rate(self, server, way, num_ranks, axis):
        """Bytes a second."""
        seconds = num_bytes = 0
        while seconds < self.args.least_seconds:
            told = self.read(server, way, num_ranks, axis)
            seconds += told["seconds"]
            num_bytes += told["bytes"]
        return num_bytes / seconds

    def stream_rows(self):
        rows = [(count, "shard") for count in self.args.ranks]
        return [*rows, (MANY, "replicate")]

    def streams(self, server, raw, number):
        result = {}
        for num_ranks, axis in self.stream_rows():
            measure.forget_peak(server.pid)
            sides = [("raw", raw), ("stream", server), ("library", server)]
            if num_ranks > 1:
                sides.pop()
            if number % 2:
                sides.reverse()
            row = {
                way: self.rate(process, way, num_ranks, axis)
                for way, process in sides
            }
            row["peak_bytes"] = measure.peak_private_bytes(server.pid)
            result[f"{num_ranks} {axis}"] = row
        return result

    def once(self, number):
        """Measures daemons that have read nothing yet."""
        result = {}
        counts = [1, MANY]
        for num_ranks in reversed(counts) if number % 2 else counts:
            with daemon(self.args, self.scratch) as server:
                self.drop_caches()
                told = self.read(server, "stream", num_ranks, "replicate")
                result[str(num_ranks)] = {
                    "seconds": told["seconds"],
                    "read": bytes_read(server),
                    "disk": bytes_from_disk(server),
                    "peak_bytes": measure.peak_private_bytes(server.pid),
                }
        copy = self.scratch / "copy"
        try:
            self.drop_caches()
            done = measure.run(["cp", "-r", self.source, copy])
            result["cp"] = {"seconds": done.seconds}
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        return result

    def jobs(self, server, number):
        result = {}
        ways = {"here": [], "daemon": ["--server", server.address]}
        for way in sorted(ways, reverse=bool(number % 2)):
            target = self.source.parent / f"resharded-{way}"
            self.drop_caches()
            measure.forget_peak(server.pid)
            done = measure.run(
                [
                    self.args.tool,
                    "reshard",
                    self.source,
                    target,
                    "--mesh",
                    "shard=3",
                    "--max-memory",
                    str(self.args.job_memory),
                    "--progress",
                    "none",
                    *ways[way],
                ]
            )
            measure.run([self.args.tool, "diff", self.source, target])
            shutil.rmtree(target)
            peak = done.peak_bytes
            if way == "daemon":
                peak = measure.peak_private_bytes(server.pid)
            result[way] = {"seconds": done.seconds, "peak_bytes": peak}
        return result

    def warm_up(self):
        for path in self.source.iterdir():
            with open(path, "rb") as file:
                while file.read(MIB):
                    pass

    def drop_caches(self):
        measure.drop_caches(
            path for path in self.source.iterdir() if path.is_file()
        )

    def round(self, number):
        skip = self.args.skip
        result = {}
        if "once" not in skip:
            result["once"] = self.once(number)
        if "jobs" not in skip:
            with daemon(self.args, self.scratch) as server:
                result["jobs"] = self.jobs(server, number)
        if "streams" not in skip:
            # Warmed up before the server opens the files, because the server
            # bypasses the page cache for data that is not in it.
            self.warm_up()
            with (
                daemon(self.args, self.scratch) as server,
                raw_server(self.args, self.model) as raw,
            ):
                for way, process in (("raw", raw), ("stream", server)):
                    self.read(process, way, 1, "shard")
                result["streams"] = self.streams(server, raw, number)
        return result


def main():
    args = parse_arguments()
    if args.rounds < 1 or args.size < TENSOR_BYTES or min(args.ranks) < 1:
        sys.exit("bench: at least one round and rank, and 64 MiB")
    report = {
        "machine": {
            "processors": os.cpu_count(),
            "load": os.getloadavg()[0],
            "kernel": os.uname().release,
        },
        "rounds": args.rounds,
        "max_memory_bytes": args.max_memory,
    }
    args.dir.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="serve-", dir=args.dir))
    try:
        bench = Bench(args, scratch)
        rounds = []
        for number in range(args.rounds):
            measure.say(f"round {number + 1} of {args.rounds}")
            rounds.append(bench.round(number))
    finally:
        shutil.rmtree(scratch)
    report["bytes"] = bench.bytes
    report["rows"] = summarize(rounds)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report)


if __name__ == "__main__":
    main()
