# SPDX-License-Identifier: Apache-2.0
"""Runs tools/dev/changelog over projects with a few files."""

import os
import re
import subprocess
import tempfile
import unittest

TOOL = os.path.abspath("tools/dev/changelog")

CHANGELOG = (
    "# Changelog\n\nNewest first.\n\n## 0.1.0 - 2026-01-02\n\nThe first.\n"
)
ADDED = "Added: `--note`\n\nIt takes a text.\n"
FIXED = (
    "Fixed: `verify` reads the last byte of a file\n\n"
    "It left the byte out where a file ends with a tensor of one byte, "
    "and\nsaid that all is well.\n"
)


class Changelog(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("CHANGELOG.md", CHANGELOG)
        self.write(
            "dcp/base/version.h",
            'inline constexpr char kVersion[] = "0.2.0";\n',
        )

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def run_tool(self, *options):
        return subprocess.run(
            [TOOL, "--root", self.folder.name, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def test_prints_changes_by_kind(self):
        self.write("changelog/unreleased/last-byte", FIXED)
        self.write("changelog/unreleased/note", ADDED)
        result = self.run_tool()
        self.assertEqual(
            result.stdout,
            "### Added\n\n- **`--note`.** It takes a text.\n\n### Fixed\n\n"
            "- **`verify` reads the last byte of a file.** It left the byte out "
            "where a file\n  ends with a tensor of one byte, and said that all "
            "is well.\n",
        )
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_prints_nothing_without_changes(self):
        result = self.run_tool()
        self.assertEqual((result.stdout, result.returncode), ("", 0))

    def test_release_comes_before_older_ones_and_removes_the_files(self):
        self.write("changelog/unreleased/note", ADDED)
        result = self.run_tool("--release")
        self.assertEqual(result.returncode, 0, result.stderr)
        text = self.read("CHANGELOG.md")
        self.assertRegex(
            text,
            r"^# Changelog\n\nNewest first.\n\n## 0.2.0 - \d{4}-\d\d-\d\d"
            r"\n\n### Added\n\n- \*\*`--note`.\*\* It takes a text.\n\n"
            r"## 0.1.0 - 2026-01-02\n\nThe first.\n$",
        )
        self.assertEqual(os.listdir(self.path("changelog/unreleased")), [])

    def refuses(self, message, *options):
        before = self.read("CHANGELOG.md")
        result = self.run_tool(*options)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, message)
        self.assertEqual(self.read("CHANGELOG.md"), before)

    def test_release_of_no_changes_is_refused(self):
        self.refuses("no changes to release", "--release")

    def test_second_release_of_a_version_is_refused(self):
        self.write("changelog/unreleased/note", ADDED)
        self.write(
            "dcp/base/version.h",
            'inline constexpr char kVersion[] = "0.1.0";\n',
        )
        self.refuses("already has 0.1.0", "--release")
        self.assertEqual(self.read("changelog/unreleased/note"), ADDED)

    def test_release_without_a_version_is_refused(self):
        self.write("changelog/unreleased/note", ADDED)
        self.write("dcp/base/version.h", "\n")
        self.refuses("has no version", "--release")

    def test_files_of_another_form_are_named(self):
        for text, message in (
            ("", "the first line is ''"),
            ("New: `--note`\n\nText.\n", "not KIND: HEADLINE"),
            ("Added: \n\nText.\n", "is empty"),
            ("Added: `--note`.\n\nText.\n", "ends in a full stop"),
            ("Added: `--note`\n", "an empty line and a text"),
            ("Added: `--note`\nText.\n", "an empty line and a text"),
            ("Added: `--note`\n\n%s\n" % ("x" * 81), "81 characters"),
        ):
            with self.subTest(text):
                self.write("changelog/unreleased/note", text)
                self.refuses(
                    "changelog/unreleased/note: .*" + re.escape(message)
                )

    def test_every_file_of_another_form_is_named(self):
        self.write("changelog/unreleased/a", "")
        self.write("changelog/unreleased/b", "")
        self.refuses("(?s)unreleased/a: .*unreleased/b: ")


if __name__ == "__main__":
    unittest.main()
