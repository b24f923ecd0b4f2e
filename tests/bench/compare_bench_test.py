# SPDX-License-Identifier: Apache-2.0
"""How `tools/bench compare` judges two files, as a user runs it."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path("tests/bench/compare_bench.py").absolute()


def report(**times):
    """A file of `tools/bench all --json`, as far as it is compared."""
    return {
        "figures": [
            {"bench": "save", "label": label, "times": value}
            for label, value in times.items()
        ]
    }


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    def compare(self, before, after, *options):
        return subprocess.run(
            [
                sys.executable,
                "-B",
                SCRIPT,
                self.file("before", before),
                self.file("after", after),
                *options,
            ],
            capture_output=True,
            text=True,
        )

    def test_what_differs_by_less_than_the_tolerance_passes(self):
        done = self.compare(report(a=2, b=3), report(a=1.7, b=9))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("save: b", done.stdout)
        self.assertIn("+200%", done.stdout)
        self.assertNotIn("worse", done.stdout)

    def test_a_row_that_became_worse_is_marked(self):
        done = self.compare(report(a=2, b=3), report(a=1.6, b=3))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, "save: a .* -20%  worse")
        self.assertIn("1 rows became worse", done.stderr)
        done = self.compare(report(a=2), report(a=1.6), "--tolerance", "30")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_row_that_is_missing_is_a_failure_and_a_new_one_is_not(self):
        done = self.compare(report(a=2, b=3), report(a=2))
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"is not in {self.folder / 'after'}", done.stdout)
        done = self.compare(report(a=2), report(a=2, b=3))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_other_files_are_refused(self):
        for text in ("", "{}", "[1]", '{"figures": [1]}'):
            done = self.compare(text, report(a=2))
            self.assertEqual(done.returncode, 1, text)
            self.assertIn("is not a file of tools/bench all", done.stderr)


if __name__ == "__main__":
    unittest.main()
