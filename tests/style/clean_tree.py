# SPDX-License-Identifier: Apache-2.0
"""A project in which no rule of tidy.py finds anything."""

from source_tree import CODE, LICENCE

HEADER = (
    "// A box.\n#ifndef DCP_BASE_BOX_H_\n#define DCP_BASE_BOX_H_\n"
    "#endif  // DCP_BASE_BOX_H_\n"
)

CLEAN = {
    ".bazelrc": "build --per_file_copt=.,-^(//)?(client|dcp|fsdp|tests)[:/]"
    "@-Wno-error\n",
    "CHANGELOG.md": "# Changelog\n\n## 1.2.3 - 2026-01-02\n",
    "docs/benchmarks.md": "## Saving: `bench`\n\n1,234 MiB, 6.46, 110\n",
    "README.md": "# Tessera\n\n## Read on\n[on](#read-on) "
    "[base](dcp/base/box.h) `dcp/base/box.cc` `//dcp/base:base`\n"
    "`dcp/base/*.h` `//dcp/...`\n```\n`dcp/none`\n```\n"
    "`Box.IsEmpty` `Box.*` `Box.is_empty`\n"
    "<!-- tests/dcp/base/box_test.cc: empty -->\n"
    "```cpp\nBox box;\n\nUse(box);\n```\n"
    "\n| | against PyTorch |\n| --- | --- |\n"
    "| [a](docs/benchmarks.md#saving-bench) of 2 | 1,234 MiB; 6.5; a hundredth |\n",
    "CONTRIBUTING.md": "| folder | what it is | may use |\n| --- | --- | --- |\n"
    "| `dcp/base` | boxes | nothing else |\n"
    "| `client` | clients | nothing else |\n",
    "client/BUILD.bazel": 'cc_library(name = "client", srcs = ["client.cc"],\n'
    'deps = ["//dcp/base"])\n',
    "client/client.cc": "// Tested by tests/dcp/base/box_test.cc.\n"
    '#include "dcp/base/box.h"\n',
    "dcp/base/BUILD.bazel": 'cc_library(name = "base", srcs = ["box.cc"],\n'
    'hdrs = ["box.h", "limits.h", "version.h"])\n',
    "dcp/base/box.cc": '#include "dcp/base/box.h"\n'
    "// A comment may say throw.\n"
    'const char* kText = "catch std::cout";\n',
    "dcp/base/box.h": HEADER,
    "dcp/base/version.h": "// The version.\n#ifndef DCP_BASE_VERSION_H_\n"
    "#define DCP_BASE_VERSION_H_\n"
    'inline constexpr char kVersion[] = "1.2.3";\n'
    "#endif  // DCP_BASE_VERSION_H_\n",
    "fsdp/BUILD.bazel": '"mesh/collective_errors.cc"\n',
    "fsdp/mesh/collective_errors.cc": "// Tested by tests/dcp/base/box_test.cc.\n"
    '#include "c10/core/Device.h"\ntry {} catch (...) {}\n',
    "dcp/base/limits.h": "// Bounds.\n#ifndef DCP_BASE_LIMITS_H_\n"
    "#define DCP_BASE_LIMITS_H_\n\n// Why.\n"
    "inline constexpr int kA = 1;\n"
    "inline constexpr int kB = kA;\n\n"
    "#endif  // DCP_BASE_LIMITS_H_\n",
    "tests/dcp/base/BUILD.bazel": '"box_test.cc"\n',
    "tests/dcp/base/box_test.cc": "#include <gtest/gtest.h>\n"
    "TEST(Box, IsEmpty) {}\n"
    "  // [empty]\n  Box box;\n\n"
    "  Use(box);\n  // [/empty]\n",
    "tests/golden/model.pt": None,
}

for _path, _text in CLEAN.items():
    if _path.endswith(CODE):
        CLEAN[_path] = "// %s\n%s" % (LICENCE, _text)
