# SPDX-License-Identifier: Apache-2.0
"""Measures how the cost of planning and serving grows; see `--help`."""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import measure

# The figures of sizes below this fraction of the largest say how much a process
# costs at all, and not how the cost grows.
FIT_FROM = 1 / 300
# n log n looks like this power over a decade, and noise adds to it.
MOST_EXPONENT = 1.15

PARTS = {
    "chunks": (
        "a checkpoint of 64 ranks, by chunks",
        ["10000", "100000", "1000000", "4000000"],
    ),
    "reshard": (
        "a reshard to 3/4 as many ranks, 200 tensors, by ranks",
        ["16", "64", "256", "1024"],
    ),
    "save": (
        "a save of 200 tensors, on rank 0, by ranks",
        ["1", "4", "16", "64", "256", "1024"],
    ),
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench scale",
        description="Measures how processor time and memory grow with the size "
        "of a checkpoint and the number of ranks, and fits a power to each: "
        "indexes and plans of up to 4,000,000 chunks, which is about what the "
        "limits on an index allow, a reshard of 1,024 ranks to 768, and a save of "
        "1,024. The code is the real one; files have no payload, storage is "
        "simulated, and ranks that save are threads of one process. Then streams "
        "of a real dcp-server over loopback. Requires 16 GB of memory.",
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=[*PARTS, "serve"],
        help="leave out a part (repeatable)",
    )
    parser.add_argument(
        "--most",
        type=int,
        default=4 * 10**6,
        metavar="N",
        help="the largest size of any part (4000000)",
    )
    parser.add_argument(
        "--streams",
        default="1,10,100,1000",
        help="numbers of streams of the daemon (1,10,100,1000)",
    )
    parser.add_argument(
        "--png",
        type=pathlib.Path,
        metavar="FILE",
        help="draw the figures to FILE, with gnuplot",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of tables"
    )
    parser.add_argument("--tool", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--bench", required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def exponent(points):
    """The power of n that the cost grows with: least squares of logarithms."""
    largest = max(size for size, _ in points)
    logs = [
        (math.log(size), math.log(cost))
        for size, cost in points
        if size >= largest * FIT_FROM and cost > 0
    ]
    if len(logs) < 2:
        return None
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum(
        (x - mean_x) ** 2 for x, _ in logs
    )


def by_step(rows):
    """Of each step: the points of seconds and bytes, and their exponents."""
    result = {}
    for step in rows[0]["steps"]:
        seconds = [(r["size"], r["steps"][step]["seconds"]) for r in rows]
        peaks = [(r["size"], r["steps"][step]["peak_bytes"]) for r in rows]
        result[step] = {
            "seconds": seconds,
            "peak_bytes": peaks,
            "seconds_exponent": exponent(seconds),
            "peak_bytes_exponent": exponent(peaks),
        }
    return result


def simulate(tool, part, sizes):
    rows = []
    for size in sizes:
        measure.say(f"{part}, {int(size):,}")
        # A process each, so that none uses the memory of the one before.
        done = measure.run([tool, f"--what={part}", f"--sizes={size}"])
        rows += json.loads(done.output)
    return by_step(rows)


def serve(bench, streams):
    """Seconds of a stream's gigabyte, and the memory of the daemon."""
    options = ["--ranks", streams, "--size", "300MB", "--rounds", "1"]
    done = subprocess.run(
        [
            bench,
            "serve",
            *options,
            "--skip",
            "once",
            "--skip",
            "jobs",
            "--json",
        ],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)["rows"]


def shown(value):
    return "-" if value is None else f"{value:.2f}"


def print_part(title, steps):
    sizes = [size for size, _ in next(iter(steps.values()))["seconds"]]
    print(f"\n{title}:")
    print(
        f"  {'processor seconds':<26}"
        + "".join(f"{size:>12,}" for size in sizes)
        + f"{'power':>8}"
    )
    for step, row in steps.items():
        cells = "".join(f"{value:>12.3f}" for _, value in row["seconds"])
        print(f"  {step:<26}{cells}{shown(row['seconds_exponent']):>8}")
    print(f"  {'peak of memory, MiB':<26}")
    for step, row in steps.items():
        cells = "".join(
            f"{value / 2**20:>12.1f}" for _, value in row["peak_bytes"]
        )
        print(f"  {step:<26}{cells}{shown(row['peak_bytes_exponent']):>8}")


def print_streams(rows):
    print("\nStreams of a daemon over loopback, a real one:")
    for row in rows:
        print(
            f"  {row['label']:<44}{row['ours']['median']:>8.2f} "
            f"{row['unit']}, {row['peak_bytes'] / 2**20:.0f} MiB"
        )


def draw(parts, path):
    """A panel for each part: seconds against size, both logarithmic."""
    blocks, panels = [], []
    for part, steps in parts.items():
        plots = []
        for step, row in steps.items():
            name = f"$d{len(blocks)}"
            points = "\n".join(f"{n} {cost}" for n, cost in row["seconds"])
            blocks.append(f"{name} << EOD\n{points}\nEOD")
            title = f"{step} (n^{{{shown(row['seconds_exponent'])}}})"
            plots.append(f"{name} with linespoints lw 2 title '{title}'")
        panels.append(f"set title '{PARTS[part][0]}'\nplot {', '.join(plots)}")
    script = "\n".join(
        [
            "set terminal pngcairo size 1500,500 font 'Sans,11'",
            f"set output '{path}'",
            "set logscale xy; set grid; set key top left",
            "set ylabel 'processor seconds'",
            *blocks,
            f"set multiplot layout 1,{len(panels)}",
            *panels,
        ]
    )
    with tempfile.NamedTemporaryFile("w", suffix=".gp") as file:
        file.write(script)
        file.flush()
        subprocess.run(["gnuplot", file.name], check=True)


def main():
    args = parse_arguments()
    report = {"load": os.getloadavg()[0], "parts": {}}
    for part, (_, sizes) in PARTS.items():
        if part in args.skip:
            continue
        sizes = [size for size in sizes if int(size) <= args.most]
        if len(sizes) < 2:
            sys.exit(
                f"bench: {part} has fewer than two sizes up to {args.most}"
            )
        report["parts"][part] = simulate(args.tool, part, sizes)
    if "serve" not in args.skip:
        report["streams"] = serve(args.bench, args.streams)
    if args.png is not None:
        draw(report["parts"], args.png)
    if args.json:
        print(json.dumps(report, indent=1))
        return
    for part, steps in report["parts"].items():
        print_part(PARTS[part][0], steps)
    if "streams" in report:
        print_streams(report["streams"])
    too_steep = [
        f"{part}, {step}: {what} grows with n^{row[what + '_exponent']:.2f}"
        for part, steps in report["parts"].items()
        for step, row in steps.items()
        for what in ("seconds", "peak_bytes")
        if (row[what + "_exponent"] or 0) > MOST_EXPONENT
    ]
    print()
    for line in too_steep or ["Nothing grows faster than n log n."]:
        print(line)
    print(f"Load of the machine at the beginning: {report['load']:.1f}.")


if __name__ == "__main__":
    main()
