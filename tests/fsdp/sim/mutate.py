# SPDX-License-Identifier: Apache-2.0
"""Takes one wait or one held buffer at a time out of a copy of the tree, and
looks whether a test on the simulated device notices.

Usage: mutate.py [--disk-cache FOLDER] [WORD...]

Runs the mutations whose names contain one of the words; all by default. Prints
the table of docs/gpu.md. The last line is "N passed, N failed": a mutation fails
that no test notices, unless it says what else implies the wait, and one that
names an implied wait fails when a test notices. tools/test --long runs it.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import mutations

ROOT = pathlib.Path(__file__).resolve().parents[3]
ENVIRONMENT = {
    "TESSERA_SIM_DEVICE": "1",
    "SIM_WATCHDOG_S": "10",
    # Some virtual machines show AMX but do not allow it.
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
}
# The first that a program says counts.
WAYS = (
    ("a race", r"nothing orders the two"),
    ("a hang", r"The simulated device hangs|did not come"),
    ("the numbers", r"tolerance"),
    ("the memory", r"got\.peaks"),
    ("the waits of the host", r"host_waits"),
)
LIMIT_SECONDS = 300


def copy_tree(folder):
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)


def check_texts(chosen):
    for mutation in chosen:
        count = (ROOT / mutation.file).read_text().count(mutation.old)
        if count != 1:
            sys.exit(
                f"{mutation.name}: {mutation.file} has its text {count} times"
            )


class Tree:
    """A copy of the tree, in which programs are built."""

    def __init__(self, folder, flags):
        self.folder = folder
        self.flags = flags
        copy_tree(folder)

    def bazel(self, *arguments):
        return subprocess.run(
            ["bazel", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def builds(self, *programs):
        done = self.bazel(
            "build", *self.flags, *("//" + program for program in programs)
        )
        if done.returncode != 0:
            print(done.stdout[-4000:], file=sys.stderr)
        return done.returncode == 0

    def run(self, program, tests):
        """How the tests end: the exit code and what they print."""
        path = self.folder / "bazel-bin" / program.replace(":", "/")
        try:
            done = subprocess.run(
                [path, f"--gtest_filter={tests}"],
                cwd=self.folder,
                env={**os.environ, **ENVIRONMENT},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=LIMIT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return 1, "did not come"
        return done.returncode, done.stdout

    def is_noticed(self, mutation):
        """How the tests notice the mutation; empty if they do not."""
        file = self.folder / mutation.file
        text = file.read_text()
        file.write_text(text.replace(mutation.old, mutation.new))
        try:
            if not self.builds(mutation.program):
                return ""
            code, printed = self.run(mutation.program, mutation.tests)
        finally:
            file.write_text(text)
        if "Running 0 tests" in printed:
            sys.exit(f"{mutation.name}: there is no test {mutation.tests}")
        if code == 0:
            return ""
        ways = [way for way, text in WAYS if re.search(text, printed)]
        return ways[0] if ways else "an error"


def try_all(tree, chosen):
    """Prints the table; the number of failures."""
    if not tree.builds(*{mutation.program for mutation in chosen}):
        sys.exit("the tree does not build")
    num_failed = 0
    print("| without the wait or the buffer, it | file | noticed by |")
    print("| --- | --- | --- |", flush=True)
    for mutation in chosen:
        noticed = tree.is_noticed(mutation)
        implied = mutation.implied_by
        num_failed += bool(noticed) == bool(implied)
        said = noticed or f"nothing: {implied or '**a test is missing**'}"
        print(f"| {mutation.name} | `{mutation.file}` | {said} |", flush=True)
    return num_failed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--disk-cache")
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    chosen = [
        mutation
        for mutation in mutations.MUTATIONS
        if not arguments.words
        or any(word in mutation.name for word in arguments.words)
    ]
    check_texts(chosen)
    # What is taken out may leave a parameter without a use.
    files = "|".join(sorted({m.file for m in mutations.MUTATIONS}))
    flags = ["--noshow_progress", f"--per_file_copt=^({files})$@-Wno-error"]
    if arguments.disk_cache:
        flags.append(f"--disk_cache={arguments.disk_cache}")
    with tempfile.TemporaryDirectory() as name:
        tree = Tree(pathlib.Path(name), flags)
        try:
            num_failed = try_all(tree, chosen)
        finally:
            # Ends the server, too.
            tree.bazel("clean", "--expunge")
    print(f"{len(chosen) - num_failed} passed, {num_failed} failed")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
