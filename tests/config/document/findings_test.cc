// SPDX-License-Identifier: Apache-2.0

#include "config/document/findings.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;

TEST(SourceLocation, PrintsTheKnownParts) {
  EXPECT_EQ(to_string(SourceLocation{.file = "run.yaml",
                                     .line = 7,
                                     .column = 3,
                                     .key = "fsdp_config.fsdp_version"}),
            "run.yaml:7: fsdp_config.fsdp_version");
  EXPECT_EQ(to_string(SourceLocation{.file = "run.yaml", .line = 7}),
            "run.yaml:7");
  EXPECT_EQ(
      to_string(SourceLocation{.file = "environment", .key = "FSDP_VERSION"}),
      "environment: FSDP_VERSION");
  EXPECT_EQ(to_string(SourceLocation{.key = "fsdp"}), "fsdp");
  EXPECT_EQ(to_string(SourceLocation{}), "");
}

TEST(Findings, FindingsPrintAsSentences) {
  const SourceLocation place = {
      .file = "run.yaml", .line = 7, .key = "fsdp_version"};
  EXPECT_EQ(to_string(Finding{Finding::Kind::kProblem, place, "is 3"}),
            "run.yaml:7: fsdp_version is 3");
  EXPECT_EQ(to_string(Finding{Finding::Kind::kProblem,
                              {.file = "run.yaml", .line = 7},
                              "is not valid YAML"}),
            "run.yaml:7: is not valid YAML");
  EXPECT_EQ(to_string(Finding{Finding::Kind::kProblem, {}, "is 3"}), "is 3");
}

TEST(Findings, StatusListsOnlyProblems) {
  Findings findings;
  EXPECT_OK(findings.ToStatus());
  findings.Changed({.key = "a"}, "is read as b");
  findings.Ignored({.key = "b"}, "has no effect");
  EXPECT_FALSE(findings.has_problems());
  EXPECT_OK(findings.ToStatus());
  findings.Problem({.key = "c"}, "is 3");
  findings.Problem({.key = "d"}, "is 4");
  EXPECT_TRUE(findings.has_problems());
  EXPECT_THAT(findings.ToStatus(),
              StatusIs(absl::StatusCode::kInvalidArgument, "c is 3\nd is 4"));
  EXPECT_EQ(findings.list().size(), 4);
}

}  // namespace
}  // namespace fsdp
