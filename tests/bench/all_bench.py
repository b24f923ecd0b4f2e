# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks one after the other and prints one table; see `--help`."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import figures
import measure

# The arguments for each with --quick, so that all of them take ten minutes on
# two processors.
QUICK = {
    "convert": ["--size", "400MB", "--rounds", "1", "--skip", "memory"],
    "save": [
        *("--gb", "0.2", "--rounds", "1", "--repeats", "1", "--steps", "4"),
        *("--onto", "1,2x1"),
    ],
    "serve": ["--size", "300MB", "--rounds", "1", "--least-seconds", "1"],
    "train": ["--sizes", "small", "--ranks", "1,2", "--rounds", "1"],
    "parallel": ["--sizes", "small", "--rounds", "1", "--steps", "4"],
    "plan": ["300"],
    "workers": [
        *("--size", "400MB", "--rounds", "1", "--skip", "several"),
        *("--skip", "kill", "--skip", "simulation"),
    ],
    "dialects": ["--size", "200MB", "--rounds", "1"],
    "map": [
        *("--size", "300MB", "--rounds", "1", "--skip", "memory"),
        *("--skip", "shapes", "--only", "llama"),
    ],
    "python": ["--size", "200MB", "--rounds", "1", "--repeats", "2"],
    "store": ["--size", "100MB", "--rounds", "1"],
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench all",
        description="Runs the other benchmarks one after the other and prints "
        "one table: how many times as good as its rival Tessera is. Each "
        "builds and installs what it needs first. Without --quick, it takes "
        "hours; with it, ten minutes, and figures that one round can give.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, one round each"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=list(QUICK),
        help="run only this one (repeatable)",
    )
    parser.add_argument(
        "--json",
        type=pathlib.Path,
        metavar="FILE",
        help="also write the table and all reports to FILE, for tools/bench "
        "compare",
    )
    parser.add_argument("--bench", required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def run(bench, name, options):
    """The report of a benchmark; None if it fails, which it has said itself."""
    measure.say(f"{name} {' '.join(options)}".rstrip())
    begin = time.monotonic()
    done = subprocess.run(
        [bench, name, *options, "--json"], stdout=subprocess.PIPE
    )
    measure.say(f"{name} took {time.monotonic() - begin:.0f} s")
    return json.loads(done.stdout) if done.returncode == 0 else None


def main():
    args = parse_arguments()
    if args.json is not None and not args.json.parent.is_dir():
        sys.exit(
            f"bench: the folder {args.json.parent} of --json does not exist"
        )
    machine = {"processors": os.cpu_count(), "load": os.getloadavg()[0]}
    reports, found, failed = {}, [], []
    for name in args.only or QUICK:
        report = run(args.bench, name, QUICK[name] if args.quick else [])
        if report is None:
            failed.append(name)
            continue
        reports[name] = report
        rows = figures.figures_of(name, report)
        figures.print_figures(rows)
        found += rows
    if args.json is not None:
        rows = [figure._asdict() for figure in found]
        text = {"machine": machine, "figures": rows, "reports": reports}
        args.json.write_text(json.dumps(text, indent=1))
    print(
        f"\n{machine['processors']} processors; the load was "
        f"{machine['load']:.1f} before the first benchmark."
    )
    if failed:
        sys.exit(f"bench: {', '.join(failed)} failed")


if __name__ == "__main__":
    main()
