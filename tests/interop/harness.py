# SPDX-License-Identifier: Apache-2.0
"""Running dcp-convert, and reporting cases to a terminal and to Bazel.

A test needs TESSERA_PROGRAM, the path of the program, and TESSERA_PYTHON's
torch; a missing one is a failure, never a reason to skip.
"""

import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from xml.sax.saxutils import quoteattr

DONE = 0
FOUND = 1
USAGE = 2
BAD_SOURCE = 3
BAD_DESTINATION = 4
REFUSED = 5
UNCHECKED = 6

# Only against a program that hangs; nothing here takes a second.
HANG_SECONDS = 120
HERE = pathlib.Path(__file__).resolve().parent


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def end_rank():
    """Ends this process, a rank of PyTorch whose work is done.

    All ranks must have met in a barrier before. Threads of Gloo may still free
    tensors, and that would abort an interpreter that is being finalized.
    """
    sys.stdout.flush()
    os._exit(0)


def expect_no_lines(lines):
    """Fails with a list of differences, if there are any."""
    more = len(lines) - 8
    shown = lines[:8] + ([f"and {more} more"] if more > 0 else [])
    expect(not lines, "\n".join(shown))


class Tool:
    """The program under test."""

    def __init__(self):
        path = os.environ.get("TESSERA_PROGRAM")
        if not path or not os.path.exists(path):
            sys.exit(f"TESSERA_PROGRAM is not a program: {path!r}")
        self.path = os.path.abspath(path)

    def run(self, *arguments, address_space=None, cwd=None):
        """The finished process; `address_space` bounds its memory in bytes."""

        def limit():
            if address_space is not None:
                bound = (address_space, address_space)
                resource.setrlimit(resource.RLIMIT_AS, bound)

        return subprocess.run(
            [self.path, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=HANG_SECONDS,
            preexec_fn=limit,
            cwd=cwd,
        )

    def __call__(self, *arguments, code=DONE, **options):
        """Runs and demands an exit code; returns the finished process."""
        process = self.run(*arguments, **options)
        expect(
            process.returncode == code,
            f"{' '.join(map(str, arguments))}\n"
            f"ended with {process.returncode}, not {code}\n"
            + process.stdout.decode(errors="replace")[-1500:]
            + process.stderr.decode(errors="replace")[-1500:],
        )
        return process

    def json(self, *arguments, code=DONE):
        return json.loads(self(*arguments, "--json", code=code).stdout)


class Suite:
    """Cases of one test program, each a function that raises on failure."""

    def __init__(self, name):
        self.name = name
        self.results = []
        self.tool = Tool()
        parent = os.environ.get("TEST_TMPDIR")
        self.scratch = pathlib.Path(tempfile.mkdtemp(dir=parent))
        self._count = 0

    def fresh(self, name="work"):
        """A new, empty folder."""
        self._count += 1
        path = self.scratch / f"{self._count}-{name}"
        path.mkdir()
        return path

    def case(self, name, function, *arguments):
        """Whether it passed."""
        begin = time.monotonic()
        try:
            function(*arguments)
            failure = None
        except AssertionError as error:
            failure = str(error)
        except Exception:
            failure = traceback.format_exc()
        self.results.append((name, time.monotonic() - begin, failure))
        if failure is None:
            print("ok  ", name, flush=True)
        else:
            text = failure.rstrip().replace("\n", "\n     ")
            print(f"FAIL {name}\n     {text}", flush=True)
        return failure is None

    def finish(self):
        """Writes test.xml for Bazel, sums up, and ends the process."""
        failed = sum(f is not None for _, _, f in self.results)
        if os.environ.get("XML_OUTPUT_FILE"):
            self._write_xml(os.environ["XML_OUTPUT_FILE"], failed)
        shutil.rmtree(self.scratch, ignore_errors=True)
        print(f"{len(self.results) - failed} passed, {failed} failed")
        sys.exit(1 if failed or not self.results else 0)

    def _write_xml(self, path, failed):
        def attribute(text):
            # XML cannot express most control characters.
            clean = "".join(c if c >= " " else "\ufffd" for c in text)
            return quoteattr(clean)

        suite = attribute(self.name)
        lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
        lines.append(
            f'<testsuite name={suite} tests="{len(self.results)}"'
            f' failures="{failed}" errors="0">'
        )
        for name, seconds, failure in self.results:
            lines.append(
                f"<testcase classname={suite} name={attribute(name)}"
                f' time="{seconds:.3f}">'
            )
            if failure is not None:
                lines.append(f"<failure message={attribute(failure[:4000])}/>")
            lines.append("</testcase>")
        lines += ["</testsuite>", "</testsuites>"]
        pathlib.Path(path).write_text("\n".join(lines) + "\n", "utf-8")


def run_script(script, *arguments):
    """Runs a Python script of this folder; shows its output if it fails."""
    command = [sys.executable, "-B", str(HERE / script), *map(str, arguments)]
    process = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=1200,
    )
    output = process.stdout.decode(errors="replace")
    expect(process.returncode == 0, f"{script} failed\n{output[-4000:]}")


def make_references(out, cases=()):
    chosen = ["--cases", ",".join(cases)] if cases else []
    run_script("make_reference.py", "--out", out, *chosen)


def expectations(folder):
    """(path of the checkpoint, what is expected of it), in order of name."""
    for name in sorted(pathlib.Path(folder).glob("*.expected.json")):
        with open(name) as f:
            expected = json.load(f)
        yield pathlib.Path(folder) / expected["path"], expected
