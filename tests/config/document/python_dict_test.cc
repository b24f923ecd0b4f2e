// SPDX-License-Identifier: Apache-2.0

#include "config/document/python_dict.h"

#include "gtest/gtest.h"

namespace fsdp::config {
namespace {

TEST(PythonDict, LiteralsStayUnchanged) {
  constexpr absl::string_view kText = "\n{\n    'fsdp': {'a': True},\n}\n";
  EXPECT_EQ(PythonDictAsYaml(kText), kText);
}

TEST(PythonDict, AssignmentsBecomeKeys) {
  EXPECT_EQ(PythonDictAsYaml("fsdp_config = {'a': 'b=c'}\n"),
            "fsdp_config:  {'a': 'b=c'}\n");
  EXPECT_EQ(PythonDictAsYaml("a: dict[str, int] = {\n}\nprecision = 'x'"),
            "a:                  {\n}\nprecision:  'x'");
  EXPECT_EQ(PythonDictAsYaml("a={}"), "a: {}");
}

TEST(PythonDict, ImportsBecomeBlank) {
  EXPECT_EQ(PythonDictAsYaml("import torch\nfrom a import b\n# c\na = 1"),
            "#\n#\n# c\na:  1");
}

}  // namespace
}  // namespace fsdp::config
