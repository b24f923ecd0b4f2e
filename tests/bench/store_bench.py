# SPDX-License-Identifier: Apache-2.0
"""Compares dcp-convert with others in front of one object store; see `--help`.

Every round runs all of them in turn, so that a change in the machine's speed
affects all. Ratios are taken within a round; the printed figure is the median over
rounds.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import time

import measure

HERE = pathlib.Path(__file__).resolve().parent
MIB = 2**20
BUCKET = "tessera"

# Each operation, and the programs for it: the first is dcp-convert.
WORKS = {
    "put": ["dcp-convert", "s5cmd", "fsspec", "connector"],
    "get": ["dcp-convert", "s5cmd"],
    "load": ["dcp-convert", "fsspec", "connector"],
    "stream": ["dcp-convert", "runai"],
}
TITLES = {
    "put": "put DCP, 4 files",
    "get": "get DCP, 4 files",
    "load": "read DCP into memory",
    "stream": "read safetensors into memory",
}
NAMES = {
    "dcp-convert": "dcp-convert",
    "s5cmd": "s5cmd cp",
    "fsspec": "PyTorch's Fsspec, s3fs",
    "connector": "s3torchconnector",
    "runai": "Run:ai model streamer",
}
# A line of the gateway's log for each request that it has answered.
REQUEST = re.compile(rb'beast: .*\] "([A-Z]+) /')

Row = collections.namedtuple("Row", "work who")


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench store",
        description="Starts an S3 server in memory (radosgw), and puts, gets "
        "and reads a checkpoint with dcp-convert, s5cmd, PyTorch's Fsspec "
        "writer and reader, s3torchconnector and Run:ai's model streamer. "
        "Requires about seven times the size of memory, of which the server "
        "takes three and files in --dir two.",
    )
    parser.add_argument(
        "--size",
        type=measure.parse_size,
        default=measure.parse_size("2GB"),
        help="of the checkpoint (2GB)",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=list(WORKS),
        help="measure only this (repeatable)",
    )
    parser.add_argument(
        "--max-memory",
        metavar="SIZE",
        default="256MiB",
        help="for dcp-convert (256MiB)",
    )
    parser.add_argument(
        "--dir",
        type=pathlib.Path,
        metavar="FOLDER",
        default=pathlib.Path("/dev/shm"),
        help="for the local files (/dev/shm, so that no disk is measured)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of a table"
    )
    parser.add_argument("--tool", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rivals", required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


class Server:
    """A gateway with a cluster, and a count of the requests."""

    def __init__(self, folder, num_bytes):
        self.folder = folder
        self.process = subprocess.Popen(
            [
                HERE.parent / "testing" / "radosgw.sh",
                folder,
                str(num_bytes // MIB),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        endpoint = self.process.stdout.readline().strip()
        if not endpoint:
            raise RuntimeError("radosgw.sh did not start; see above for why")
        for name in list(os.environ):
            if name.startswith("AWS_"):
                del os.environ[name]
        os.environ.update(
            AWS_ENDPOINT_URL=endpoint,
            AWS_ACCESS_KEY_ID=BUCKET,
            AWS_SECRET_ACCESS_KEY="tesserasecret",
            AWS_REGION="us-east-1",
            AWS_EC2_METADATA_DISABLED="true",
            # Newer checksums of the SDKs are unknown to this gateway.
            AWS_REQUEST_CHECKSUM_CALCULATION="when_required",
            AWS_RESPONSE_CHECKSUM_VALIDATION="when_required",
            # For Run:ai's streamer: buckets are a part of the path.
            RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING="0",
        )
        self.endpoint = endpoint
        self.log = open(folder / "log" / "gateway", "rb")

    def requests(self):
        """Those since the last call, by their method."""
        found = collections.Counter()
        for line in self.log:
            match = REQUEST.search(line)
            if match:
                found[match[1].decode()] += 1
        return found

    def stop(self):
        self.log.close()
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Bench:
    def __init__(self, args):
        self.args = args
        self.dir = args.dir / "tessera-bench-store"
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        # Paths of sockets must be short.
        self.server = Server(
            pathlib.Path(f"/tmp/rgw-bench-{os.getpid()}"), 4 * args.size
        )
        self.refused = {}

    def url(self, name):
        return f"s3://{BUCKET}/{name}"

    def s5cmd(self, *words):
        return measure.run(
            [
                # Not bin/s5cmd, which starts a Python first.
                pathlib.Path(self.args.rivals) / "s5cmd" / "bin" / "s5cmd",
                "--log",
                "error",
                "--endpoint-url",
                self.server.endpoint,
                *words,
            ]
        )

    def ours(self, *words):
        return measure.run(
            [
                self.args.tool,
                *words,
                "--max-memory",
                self.args.max_memory,
                "--progress",
                "none",
            ]
        )

    def python(self, what, kind, *places):
        done = measure.run(
            [
                self.args.python,
                HERE / "store_rivals.py",
                what,
                kind,
                *places,
            ]
        )
        cost = json.loads(done.output.splitlines()[-1])
        return done._replace(
            seconds=cost["seconds"], cpu_seconds=cost["cpu_seconds"]
        )

    def make(self):
        """The checkpoint, here and in the store, and as safetensors there."""
        measure.say("generating")
        self.src = self.dir / "src"
        measure.run(
            [
                self.args.python,
                HERE / "make_checkpoint.py",
                "transformer",
                self.src,
                str(self.args.size),
            ]
        )
        self.bytes = sum(f.stat().st_size for f in self.src.iterdir())
        if "get" in self.works() or "load" in self.works():
            self.s5cmd("cp", f"{self.src}/", f"{self.url('dcp')}/")
        if "stream" in self.works():
            self.ours(
                "consolidate",
                self.src,
                self.url("model.safetensors"),
                "--include",
                "model.*",
            )

    def works(self):
        return self.args.only or list(WORKS)

    def act(self, row, name):
        """Runs it. The uploaded checkpoint has the name `name`, here or there."""
        local, remote = self.dir / name, self.url(name)
        dcp, file = self.url("dcp"), self.url("model.safetensors")
        actions = {
            ("put", "dcp-convert"): lambda: self.ours(
                "convert", self.src, remote, "--to", "dcp"
            ),
            ("put", "s5cmd"): lambda: self.s5cmd(
                "cp", f"{self.src}/", f"{remote}/"
            ),
            ("get", "dcp-convert"): lambda: self.ours(
                "convert", dcp, local, "--to", "dcp"
            ),
            ("get", "s5cmd"): lambda: self.s5cmd("cp", f"{dcp}/*", f"{local}/"),
            ("load", "dcp-convert"): lambda: self.ours("verify", dcp),
            ("stream", "dcp-convert"): lambda: self.ours("verify", file),
            ("stream", "runai"): lambda: self.python("get", "runai", file),
        }
        if tuple(row) in actions:
            return actions[tuple(row)]()
        if row.work == "put":
            return self.python("put", row.who, self.src, remote)
        return self.python("get", row.who, dcp)

    def measure(self, row):
        """None if it cannot do this with this server."""
        if row in self.refused:
            return None
        name = f"{row.work}-{row.who}"
        self.server.requests()
        try:
            done = self.act(row, name)
        except RuntimeError as error:
            if row.who == "dcp-convert":
                raise
            self.refused[row] = str(error).strip().splitlines()[-1]
            return None
        finally:
            self.clean(row, name)
        return {
            "seconds": done.seconds,
            "cpu_seconds": done.cpu_seconds,
            "peak_bytes": done.peak_bytes,
            "requests": self.asked,
        }

    def clean(self, row, name):
        time.sleep(0.2)  # the log is a little late
        self.asked = self.server.requests()
        shutil.rmtree(self.dir / name, ignore_errors=True)
        if row.work != "put":
            return
        self.s5cmd("rm", f"{self.url(name)}/*")
        # The gateway frees removed objects after a few seconds.
        time.sleep(8)

    def run(self):
        try:
            self.make()
            rows = [Row(w, who) for w in self.works() for who in WORKS[w]]
            rounds = []
            for number in range(self.args.rounds):
                measure.say(f"round {number + 1} of {self.args.rounds}")
                rounds.append({row: self.measure(row) for row in rows})
            return [self.summarize(row, rounds) for row in rows]
        finally:
            self.server.stop()
            shutil.rmtree(self.dir)

    def summarize(self, row, rounds):
        summary = {"work": row.work, "who": row.who}
        if row in self.refused:
            return {**summary, "refused": self.refused[row]}
        ours = Row(row.work, "dcp-convert")
        gigabytes = self.bytes / 1e9

        def median(function):
            return statistics.median(function(one) for one in rounds)

        def ratios(what):
            values = [one[row][what] / one[ours][what] for one in rounds]
            return [statistics.median(values), *measure.spread(values)]

        requests = rounds[-1][row]["requests"]
        return {
            **summary,
            "rate": median(lambda one: gigabytes / one[row]["seconds"]),
            "cpu": median(lambda one: one[row]["cpu_seconds"] / gigabytes),
            "peak_bytes": max(one[row]["peak_bytes"] for one in rounds),
            "seconds_ratio": ratios("seconds"),
            "cpu_ratio": ratios("cpu_seconds"),
            "requests": {k: n / gigabytes for k, n in requests.items()},
        }


def print_table(summaries, num_bytes):
    line = "{:<26}{:>7}{:>9}{:>10}{:>22}{:>8}  {}"
    print(
        line.format(
            f"{num_bytes / 1e9:.2f} GB",
            "GB/s",
            "CPU s/GB",
            "peak MiB",
            "seconds / ours",
            "CPU",
            "requests per GB",
        )
    )
    work = None
    for row in summaries:
        if row["work"] != work:
            work = row["work"]
            print(f"\n{TITLES[work]}")
        name = f"  {NAMES[row['who']]}"
        if "refused" in row:
            print(f"{name:<26} fails: {row['refused']}")
            continue
        middle, low, high = row["seconds_ratio"]
        rival = row["who"] != "dcp-convert"
        print(
            line.format(
                name,
                f"{row['rate']:.2f}",
                f"{row['cpu']:.2f}",
                f"{row['peak_bytes'] / MIB:.0f}",
                f"{middle:.2f} [{low:.2f}, {high:.2f}]" if rival else "",
                f"{row['cpu_ratio'][0]:.2f}" if rival else "",
                " ".join(
                    f"{method} {number:.0f}"
                    for method, number in sorted(row["requests"].items())
                ),
            )
        )
    print(
        "\nThe server runs on the same processors, in memory. Of libraries of "
        "Python, neither\nimports nor the making of the tensors count; their "
        "memory includes the tensors.\ndcp-convert reads into memory with "
        "`verify`, which compares checksums. Load of the\nmachine: "
        f"{os.getloadavg()[0]:.1f}."
    )


def main():
    args = parse_arguments()
    os.environ["PYTHONPATH"] = args.rivals
    bench = Bench(args)
    summaries = bench.run()
    if args.json:
        print(json.dumps(summaries, indent=1))
    else:
        print_table(summaries, bench.bytes)


if __name__ == "__main__":
    main()
