// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/mesh_options.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tools/dcp_convert/options/command_line_parser.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<CommandLine> Reshard(absl::string_view options) {
  return ParseCommandLine(std::vector<std::string>(
      absl::StrSplit(absl::StrCat("reshard a b ", options), ' ')));
}

// "glob[@mesh] placements" for each rule, or the error's text.
std::vector<std::string> Rules(absl::string_view options) {
  const absl::StatusOr<CommandLine> line = Reshard(options);
  if (!line.ok()) return {std::string(line.status().message())};
  std::vector<std::string> rules;
  for (const PlacementRule& rule : line->write.spec.placements) {
    rules.push_back(absl::StrCat(rule.glob, rule.mesh.empty() ? "" : "@",
                                 rule.mesh, " ", ToString(rule.placements)));
  }
  return rules;
}

TEST(MeshOptions, PlacementsNameAxesInCutOrder) {
  EXPECT_THAT(Rules("--place *.up.weight*=tp:S(0),dp:S(0) --mesh dp=2,tp=2 "
                    "--place *.down.weight*=tp:S(1),dp:S(0) "
                    "--place *.bias=dp:S(0)"),
              ElementsAre("*.up.weight* SS(0,2),S(0)",
                          "*.down.weight* S(0),S(1)", "*.bias S(0),R"));
}

TEST(MeshOptions, PatternsMayNameAMesh) {
  EXPECT_THAT(
      Rules("--place *.experts.*@experts=ep:S(0),efsdp:S(0) "
            "--mesh experts:efsdp=2,ep=2 --mesh fsdp=4 --place *@0=S(0) "
            "--place @experts=R"),
      ElementsAre("*.experts.*@experts SS(0,2),S(0)", "*@0 S(0)",
                  "@experts R"));
  ASSERT_OK_AND_ASSIGN(
      const CommandLine line,
      Reshard("--mesh e:efsdp=2,ep=2 --mesh fsdp=4 --place *@e=S(0),R"));
  EXPECT_EQ(ToString(*line.write.spec.mesh), "fsdp=4");
  ASSERT_EQ(line.write.spec.other_meshes.size(), 1u);
  EXPECT_EQ(line.write.spec.other_meshes[0].name, "e");
  EXPECT_EQ(ToString(line.write.spec.other_meshes[0].mesh), "efsdp=2,ep=2");
}

TEST(MeshOptions, NamesMistakes) {
  const std::vector<std::pair<const char*, const char*>> mistakes = {
      {"--mesh a=2 --mesh b=2", "write NAME:SPEC for another one"},
      {"--mesh a=2 --mesh :b=2", "NAME:SPEC"},
      {"--mesh x:a=2", "a mesh with a name requires one without"},
      {"--mesh a=2 --place w=b:S(0)", "the mesh a=2 has no axis b"},
      {"--mesh a=2,b=2 --place w=a:S(0),S(1)", "is not AXIS:S(dim)"},
      {"--mesh a=2 --place w=a:SS(0,2)", "follows from the order"},
      {"--mesh a=2 --mesh x:b=2,c=1 --place w@x=S(0)",
       "has 1 placements, but the mesh b=2,c=1 has 2"},
      {"--mesh a=2 --tp-axis a", "--tp-axis requires --tp-plan"},
      {"--tp-plan p.yaml", "--tp-plan requires --mesh"},
      {"--mesh a=2 --tp-plan= ", "--tp-plan"},
      {"--mesh a=2 --tp-plan p --tp-axis=", "--tp-axis"}};
  for (const auto& [options, message] : mistakes) {
    EXPECT_THAT(Rules(options), ElementsAre(HasSubstr(message))) << options;
  }
}

TEST(LoadTpPlan, ReadsThePlanAndTheAxis) {
  SimStorage fs;
  ASSERT_OK(WriteFile(fs, "/plan.yaml", "layers.*.w1: colwise\n"));
  ASSERT_OK_AND_ASSIGN(CommandLine line,
                       Reshard("--mesh dp=2,tp=2 --tp-plan /plan.yaml"));
  ASSERT_OK(LoadTpPlan(fs, line));
  EXPECT_EQ(line.write.spec.tensor_parallel->axis, "tp");
  ASSERT_EQ(line.write.spec.tensor_parallel->plan.entries().size(), 1u);
  EXPECT_EQ(line.write.spec.tensor_parallel->plan.entries()[0].pattern,
            "layers.*.w1");
  ASSERT_OK_AND_ASSIGN(
      line, Reshard("--mesh dp=2,t=2 --tp-plan /plan.yaml --tp-axis t"));
  ASSERT_OK(LoadTpPlan(fs, line));
  EXPECT_EQ(line.write.spec.tensor_parallel->axis, "t");
  ASSERT_OK_AND_ASSIGN(line, Reshard("--mesh dp=2"));
  ASSERT_OK(LoadTpPlan(fs, line));
  EXPECT_FALSE(line.write.spec.tensor_parallel.has_value());
}

TEST(LoadTpPlan, NamesTheLineOfProblems) {
  SimStorage fs;
  ASSERT_OK(WriteFile(fs, "/plan.yaml", "a: colwse\nb: 3\n"));
  ASSERT_OK_AND_ASSIGN(CommandLine line,
                       Reshard("--mesh dp=2,tp=2 --tp-plan /plan.yaml"));
  EXPECT_THAT(LoadTpPlan(fs, line),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("/plan.yaml:1: a is 'colwse'"),
                             HasSubstr("\n/plan.yaml:2: b is neither"))));
  line.write.tp_plan = "/none.yaml";
  EXPECT_THAT(LoadTpPlan(fs, line),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none.yaml")));
}

}  // namespace
}  // namespace dcp::tools
