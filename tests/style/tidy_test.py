# SPDX-License-Identifier: Apache-2.0
"""Runs the rules of tidy.py over the project, and each over trees that it must
refuse. Takes the root of the project as its argument."""

import os
import sys
import time
import unittest
import xml.sax.saxutils as sax

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import english  # pylint: disable=wrong-import-position
import rooms  # pylint: disable=wrong-import-position
import source_tree  # pylint: disable=wrong-import-position
import tidy  # pylint: disable=wrong-import-position
from broken_trees import BROKEN  # pylint: disable=wrong-import-position
from clean_tree import CLEAN  # pylint: disable=wrong-import-position


def changed(changes):
    tree = dict(CLEAN)
    for path, text in changes.items():
        tree.pop(path, None)
        if text is not None:
            tree[path] = text
    return tree


class RuleRefuses(unittest.TestCase):
    """Each rule finds what it is meant to find."""

    def test_every_rule_has_a_case(self):
        self.assertEqual({rule for rule, _, _ in BROKEN}, set(tidy.RULES))

    def test_reading_a_folder_finds_this_file(self):
        tree = source_tree.read_tree(ROOT)
        self.assertIn("tests/style/tidy.py", tree)
        self.assertIn("WORKSPACE", tree)


class RuleAccepts(unittest.TestCase):
    """No rule finds anything in a project that follows them all."""


class Project(unittest.TestCase):
    """This project follows each rule."""


def _add_tests():
    def refuses(rule, changes):
        return lambda self: self.assertNotEqual(rule(changed(changes)), [])

    def accepts(rule):
        return lambda self: self.assertEqual(rule(CLEAN), [])

    def kept(rule):
        def check(self):
            findings = rule(TREE)
            self.assertEqual([], findings, "\n" + "\n".join(findings))

        return check

    for rule, name, changes in BROKEN:
        setattr(
            RuleRefuses,
            "test_%s_%s" % (rule.__name__, name),
            refuses(rule, changes),
        )
    for rule in tidy.RULES:
        setattr(RuleAccepts, "test_" + rule.__name__, accepts(rule))
        setattr(Project, "test_" + rule.__name__, kept(rule))


class XmlResult(unittest.TextTestResult):
    """Also writes one <testcase> per test, for the programs that count them."""

    def __init__(self, *args):
        super().__init__(*args)
        self.cases = []
        self.begin = 0

    def startTest(self, test):
        self.begin = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        bad = [
            text
            for failed, text in self.failures + self.errors
            if failed is test
        ]
        self.cases.append(
            '<testcase classname=%s name=%s time="%.3f">%s'
            "</testcase>"
            % (
                sax.quoteattr(type(test).__name__),
                sax.quoteattr(test.id().split(".")[-1]),
                time.monotonic() - self.begin,
                "".join("<failure>%s</failure>" % sax.escape(b) for b in bad),
            )
        )


def main():
    _add_tests()
    print(rooms.summary(TREE))
    print(english.summary(TREE))
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(case)
        for case in (RuleRefuses, RuleAccepts, Project)
    )
    result = unittest.TextTestRunner(resultclass=XmlResult).run(suite)
    if "XML_OUTPUT_FILE" in os.environ:
        with open(os.environ["XML_OUTPUT_FILE"], "w", encoding="utf8") as out:
            out.write(
                '<testsuites><testsuite name="tidy">%s</testsuite>'
                "</testsuites>\n" % "".join(result.cases)
            )
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    ROOT = os.path.abspath(sys.argv[1])
    TREE = source_tree.read_tree(ROOT)
    sys.exit(main())
