# SPDX-License-Identifier: Apache-2.0
"""Trees that the rules of tidy.py must refuse."""

import english
import length_rules
import markdown_rules
import release_rules
import rooms
import tidy
from clean_tree import CLEAN, HEADER

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
                "sysconf(_SC_PAGE" + "SIZE);",
                "getpagesize();",
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
            release_rules.figures_are_measured,
            "other_figure",
            {
                "README.md": "| [a](docs/benchmarks.md#saving) | 7.1 times |\n",
                "docs/benchmarks.md": "## Saving\n| 7.16 | 8.1 |\n## Loading\n7.1",
            },
        ),
        (
            release_rules.figures_are_measured,
            "other_word",
            {
                "README.md": "| [a](docs/benchmarks.md#saving) | a sixth |\n",
                "docs/benchmarks.md": "## Saving\n6.6\n",
            },
        ),
        (
            release_rules.figures_are_measured,
            "no_link",
            {"README.md": "| | against PyTorch |\n| --- | --- |\n| a | 7 |\n"},
        ),
        (
            release_rules.sources_name_their_licence,
            "source",
            {"dcp/base/box.cc": '#include "dcp/base/box.h"\n'},
        ),
        (
            release_rules.sources_name_their_licence,
            "script",
            {"tools/box": "#!/bin/sh\necho\n"},
        ),
        (
            release_rules.sources_name_their_licence,
            "other_licence",
            {"tools/box.py": "# SPDX-License-Identifier: MIT\n"},
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
            english.comments_are_plain,
            "relative_clauses",
            {"dcp/base/box.cc": "// Does what is needed.\n" * 5},
        ),
        (
            english.names_say_the_result,
            "many",
            {
                "dcp/base/box.cc": "".join(
                    "void %sOf();\n" % letter
                    for letter in "ABCDEFGHIJKLMNOPQRSTU"
                )
            },
        ),
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
