"""Runs the rules of tidy.py over the project, and each over trees that it must
refuse. Takes the root of the project as its argument."""

import os
import sys
import time
import unittest
import xml.sax.saxutils as sax

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import english  # pylint: disable=wrong-import-position
import length_rules  # pylint: disable=wrong-import-position
import markdown_rules  # pylint: disable=wrong-import-position
import release_rules  # pylint: disable=wrong-import-position
import rooms  # pylint: disable=wrong-import-position
import source_tree  # pylint: disable=wrong-import-position
import tidy  # pylint: disable=wrong-import-position
from clean_tree import CLEAN, HEADER  # pylint: disable=wrong-import-position

# Rule, name of the case, what it changes in CLEAN; None removes a file.
BROKEN = (
    [
        (tidy.banned_words, "word" + str(i), {"dcp/base/box.cc": text})
        for i, text in enumerate(
            (
                "throw 1;",
                "try {} catch (...) {}",
                "std::string_view s;",
                "std::cout << 1;",
                'printf("");',
                "usleep(1);",
                "std::this_thread::sleep_for(x);",
                "absl::SleepFor(x);",
                "using namespace std;",
                "#include <format>",
                "std::views::iota(1);",
                "absl::Now();",
                "changed_.WaitWithTimeout(&mutex_, x);",
                "std::chrono::system_clock::now();",
                "std::thread t(f);",
                "std::jthread t(f);",
                "std::async(f);",
                "pthread_create(&t, nullptr, f, nullptr);",
                "std::random_device d;",
                "absl::BitGen random;",
                "absl::InsecureBitGen random;",
            )
        )
    ]
    + [
        (
            tidy.banned_words,
            "skipped_test",
            {"tests/dcp/base/box_test.cc": "GTEST_" + "SKIP();"},
        ),
        (
            tidy.banned_words,
            "exception_in_engine",
            {"fsdp/mesh.cc": "throw 1;"},
        ),
        (
            tidy.banned_words,
            "other_word_where_exceptions_may_be",
            {"fsdp/mesh/collective_errors.cc": "usleep(1);"},
        ),
        (
            length_rules.files_are_short,
            "many_lines",
            {"tests/dcp/base/box_test.cc": "int a;\n" * 501},
        ),
        (
            length_rules.functions_are_short,
            "function",
            {"dcp/base/box.cc": "int Sum() {\n" + "  ++a;\n" * 69 + "}\n"},
        ),
        (
            length_rules.functions_are_short,
            "constructor_in_a_class",
            {
                "dcp/base/box.cc": "namespace dcp {\nclass Box : public Shape {\n public:\n"
                "  explicit Box(int a) : a_{a}, b_(a) {\n"
                + "    for (;;) {}\n" * 69
                + "  }\n};\n}\n"
            },
        ),
        (
            length_rules.functions_are_short,
            "test",
            {
                "tests/dcp/base/box_test.cc": "TEST(Box, Is) {\n"
                + '  Use([] { return "}"; });\n' * 69
                + "}\n"
            },
        ),
        (
            tidy.mutations_apply,
            "text_that_has_changed",
            {
                "tests/fsdp/sim/mutations.py": "import types\nMUTATIONS = (types.SimpleNamespace("
                "name='a', file='fsdp/mesh.cc', old='Wait();'),)",
                "fsdp/mesh.cc": "Wait(event);",
            },
        ),
        (
            tidy.header_guards,
            "other_guard",
            {"dcp/base/box.h": HEADER.replace("BOX_H_", "BAX_H_")},
        ),
        (
            tidy.headers_open_with_comment,
            "no_comment",
            {"dcp/base/box.h": HEADER[len("// A box.\n") :]},
        ),
        (
            tidy.includes_allowed,
            "liburing_in_base",
            {"dcp/base/box.cc": "#include <liburing.h>"},
        ),
        (
            tidy.includes_allowed,
            "xxhash_in_io",
            {"dcp/io/box.cc": "#include <xxhash.h>"},
        ),
        (
            tidy.includes_allowed,
            "gtest_in_library",
            {"dcp/base/box.cc": '#include "gtest/gtest.h"'},
        ),
        (
            tidy.includes_allowed,
            "libtorch_in_base",
            {"dcp/base/box.cc": '#include "ATen/core/Tensor.h"'},
        ),
        (
            tidy.includes_allowed,
            "cuda_in_engine",
            {"fsdp/mesh.cc": '#include "c10/cuda/CUDAStream.h"'},
        ),
        (
            tidy.includes_allowed,
            "grpc_in_base",
            {"dcp/base/box.cc": '#include "grpcpp/grpcpp.h"'},
        ),
        (
            tidy.includes_allowed,
            "api_in_checkpoint",
            {"dcp/checkpoint/box.cc": '#include "tessera/v1/checkpoint.pb.h"'},
        ),
        (
            tidy.includes_allowed,
            "sqlite_in_client",
            {"client/job.cc": "#include <sqlite3.h>"},
        ),
        (
            tidy.includes_allowed,
            "libtorch_in_server",
            {"server/jobs/job.cc": '#include "torch/torch.h"'},
        ),
        (
            tidy.limits_have_comments,
            "no_reason",
            {
                "dcp/base/limits.h": CLEAN["dcp/base/limits.h"].replace(
                    "// Why.\n", ""
                )
            },
        ),
        (
            tidy.limits_have_comments,
            "reason_of_another",
            {
                "dcp/base/limits.h": CLEAN["dcp/base/limits.h"].replace(
                    "inline constexpr int kB", "\ninline constexpr int kB"
                )
            },
        ),
        (
            markdown_rules.links_exist,
            "no_file",
            {"README.md": "[a](dcp/none.md)"},
        ),
        (markdown_rules.links_exist, "no_heading", {"README.md": "[a](#none)"}),
        (markdown_rules.paths_exist, "no_file", {"README.md": "`dcp/none.cc`"}),
        (
            markdown_rules.paths_exist,
            "no_package",
            {"README.md": "`//dcp/none`"},
        ),
        (
            markdown_rules.paths_exist,
            "no_target",
            {"README.md": "`//dcp/base:no`"},
        ),
        (
            markdown_rules.snippets_are_code,
            "other_code",
            {
                "README.md": "<!-- tests/dcp/base/box_test.cc: empty -->\n"
                "```cpp\nBox box;\n```\n"
            },
        ),
        (
            markdown_rules.snippets_are_code,
            "no_region",
            {
                "README.md": "<!-- tests/dcp/base/box_test.cc: full -->\n"
                "```cpp\nBox box;\n```\n"
            },
        ),
        (
            markdown_rules.snippets_are_code,
            "no_source",
            {
                "README.md": "<!-- tests/dcp/base/none.cc: empty -->\n"
                "```cpp\nBox box;\n```\n"
            },
        ),
        (markdown_rules.tests_exist, "no_test", {"README.md": "`Box.IsFull`"}),
        (markdown_rules.tests_exist, "no_suite", {"README.md": "`Sphere.*`"}),
        (
            markdown_rules.paths_exist,
            "in_command",
            {"README.md": "`run tools/none --now`"},
        ),
    ]
    + [
        (tidy.no_leftovers, "word" + str(i), {"dcp/base/box.cc": "// " + word})
        for i, word in enumerate(tidy.LEFTOVERS)
    ]
    + [
        (
            tidy.no_machine_paths,
            "path" + str(i),
            {"README.md": "see " + word + "x"},
        )
        for i, word in enumerate(tidy.MACHINE_PATHS + tidy.REGISTRIES)
    ]
    + [
        (tidy.sources_are_built, "source", {"dcp/base/BUILD.bazel": '"box.h"'}),
        (tidy.sources_are_built, "no_package", {"dcp/base/BUILD.bazel": None}),
        (tidy.sources_are_built, "test", {"tests/dcp/base/BUILD.bazel": ""}),
        (
            tidy.sources_have_tests,
            "no_test",
            {"tests/dcp/base/box_test.cc": None},
        ),
        (
            tidy.sources_have_tests,
            "no_test_of_a_tool",
            {"tools/box/box.cc": ""},
        ),
        (
            tidy.sources_have_tests,
            "names_no_test",
            {"dcp/base/box.cc": "// Tested by tests/dcp/base/cube_test.cc.\n"},
        ),
    ]
    + [
        (
            rooms.includes_are_declared,
            "without_dependency",
            {
                "client/BUILD.bazel": 'cc_library(name = "client", srcs = ["client.cc"])\n'
            },
        ),
        (
            rooms.includes_are_declared,
            "of_another_target",
            {
                "dcp/base/BUILD.bazel": 'cc_library(name = "base", srcs = ["box.cc"],\n'
                'hdrs = ["limits.h"])\n'
                'cc_library(name = "box", hdrs = ["box.h"])\n'
            },
        ),
        (
            rooms.layers_are_kept,
            "up",
            {
                "dcp/base/BUILD.bazel": CLEAN["dcp/base/BUILD.bazel"].replace(
                    "hdrs", 'deps = ["//client"], hdrs'
                )
            },
        ),
        (
            rooms.layers_are_kept,
            "no_row",
            {
                "CONTRIBUTING.md": CLEAN["CONTRIBUTING.md"].replace(
                    "| `client`", "| `clients`"
                )
            },
        ),
        (
            rooms.no_circles,
            "of_headers",
            {
                "dcp/base/box.h": HEADER + '#include "dcp/base/limits.h"\n',
                "dcp/base/limits.h": '#include "dcp/base/box.h"\n',
            },
        ),
        (
            rooms.no_circles,
            "of_rooms",
            {
                "client/reader.h": "",
                "dcp/base/box.cc": '#include "client/reader.h"\n',
            },
        ),
        (
            rooms.rooms_are_small,
            "one_more",
            {"dcp/base/box%d.h" % i: "" for i in range(rooms.MAX_SOURCES)},
        ),
    ]
    + [
        (
            release_rules.changes_have_form,
            "no_kind",
            {
                "changelog/unreleased/note": "A note\n",
                "tools/dev/changelog": "def parse_change(text):\n"
                "  raise ValueError('no kind')\n",
            },
        ),
        (
            release_rules.version_stands_once,
            "other_release",
            {"CHANGELOG.md": "## 1.2.2 - 2026-01-01\n"},
        ),
        (
            release_rules.version_stands_once,
            "no_version",
            {"dcp/base/version.h": None},
        ),
        (
            release_rules.version_stands_once,
            "second_copy",
            {"python/setup.py": "version='1.2.3'"},
        ),
    ]
    + [
        (
            tidy.warnings_are_errors_in_ours_alone,
            "everybodys",
            {".bazelrc": "build --copt=-Werror\n"},
        ),
        (
            tidy.warnings_are_errors_in_ours_alone,
            "a_folder_is_missing",
            {
                ".bazelrc": "build --per_file_copt=.,-^(//)?(dcp|tests)[:/]"
                "@-Wno-error\n"
            },
        ),
        (
            tidy.warnings_are_errors_in_ours_alone,
            "too_many",
            {
                ".bazelrc": "build --per_file_copt=.,-(dcp|fsdp|tests)[:/]"
                "@-Wno-error\n"
            },
        ),
    ]
)


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
