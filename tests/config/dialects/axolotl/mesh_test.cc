// SPDX-License-Identifier: Apache-2.0
// How axolotl computes the mesh: utils/distributed.py for the axes, and
// integrations/expert_parallel for experts.
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "config/dialects/axolotl/axolotl.h"
#include "config/explain/mesh_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"
#include "tests/testing/status_matchers.h"

namespace fsdp::config {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr absl::string_view kFsdp =
    "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n";

Reading ReadSizesText(absl::string_view text) {
  return ReadWith(&ReadAxolotl, "run.yaml", Syntax::kYaml,
                  absl::StrCat("base_model: x/y\nmicro_batch_size: 1\n", text));
}

struct SizesRow {
  const char* name;
  bool is_fsdp;
  const char* sizes;
  int64_t ranks;
  std::optional<MeshPlan> plan;  // absent: not on so many ranks

  friend std::ostream& operator<<(std::ostream& out, const SizesRow& row) {
    return out << row.name;
  }
};

const SizesRow kSizesRows[] = {
    {"AllAreShards", true, "", 8, MeshPlan{.shard = 8}},
    {"WhatShardsLeaveAreCopies", true, "dp_shard_size: 4\n", 8,
     MeshPlan{.replicate = 2, .shard = 4}},
    {"AllThatShardsNeed", true, "dp_shard_size: 8\n", 8, MeshPlan{.shard = 8}},
    {"WhatCopiesLeaveAreShards", true, "dp_replicate_size: 2\n", 8,
     MeshPlan{.replicate = 2, .shard = 4}},
    {"OneShardIsNoSize", true, "dp_shard_size: 1\n", 8, MeshPlan{.shard = 8}},
    {"BothAreFixed", true, "dp_shard_size: 2\ndp_replicate_size: 2\n", 8,
     std::nullopt},
    {"TensorFirst", true, "dp_shard_size: 2\ntensor_parallel_size: 2\n", 8,
     MeshPlan{.replicate = 2, .shard = 2, .tensor_parallel = 2}},
    {"AllRanksOfTensors", true, "tensor_parallel_size: 4\n", 4, std::nullopt},
    {"AllRanksAreCopies", true, "dp_replicate_size: 4\n", 4, std::nullopt},
    {"OneRank", true, "", 1, MeshPlan{}},
    {"ExpertsBesideShards", true, "expert_parallel_size: 2\ndp_shard_size: 2\n",
     4, MeshPlan{.shard = 4, .expert_parallel = 2}},
    {"ExpertsBesideShardsOnMore", true,
     "expert_parallel_size: 2\ndp_shard_size: 2\n", 8, std::nullopt},
    {"ExpertsAlone", false, "expert_parallel_size: 4\n", 4,
     MeshPlan{.shard = 4, .expert_parallel = 4}},
    {"ExpertsAndSequences", true,
     "expert_parallel_size: 2\ncontext_parallel_size: 2\n", 4,
     MeshPlan{.shard = 2, .context_parallel = 2, .expert_parallel = 2}},
    {"Copies", false, "", 8, MeshPlan{.replicate = 8}},
    {"SequencesOfCopies", false, "context_parallel_size: 4\n", 8,
     MeshPlan{.replicate = 2, .context_parallel = 4}},
    {"TensorsWithoutFsdp", false, "tensor_parallel_size: 4\n", 4,
     MeshPlan{.tensor_parallel = 4}},
    {"TensorsWithoutFsdpOnMore", false, "tensor_parallel_size: 4\n", 8,
     std::nullopt},
};

class AxolotlMesh : public ::testing::TestWithParam<SizesRow> {};

TEST_P(AxolotlMesh, HasTheSameRanksAsAxolotl) {
  const SizesRow& row = GetParam();
  const Reading reading =
      ReadSizesText(absl::StrCat(row.is_fsdp ? kFsdp : "", row.sizes));
  EXPECT_THAT(reading.findings, Each(Not(StartsWith("problem"))));
  const absl::StatusOr<MeshPlan> plan =
      plan_mesh(reading.config.mesh, row.ranks, row.ranks);
  ASSERT_EQ(plan.ok(), row.plan.has_value()) << plan.status();
  if (plan.ok()) EXPECT_EQ(*plan, *row.plan);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, AxolotlMesh, ::testing::ValuesIn(kSizesRows),
    [](const ::testing::TestParamInfo<SizesRow>& instance) {
      return std::string(instance.param.name);
    });

TEST(AxolotlSizes, ReportSizesThatAxolotlRefuses) {
  const auto expect = [](bool is_fsdp, const char* sizes, const char* problem) {
    EXPECT_THAT(
        ReadSizesText(absl::StrCat(is_fsdp ? kFsdp : "", sizes)).findings,
        Contains(HasSubstr(problem)))
        << sizes;
  };
  expect(true, "expert_parallel_size: 2\ntensor_parallel_size: 2\n",
         "tensor_parallel_size is 2, which axolotl refuses together with "
         "expert_parallel_size");
  expect(true, "expert_parallel_size: 2\ndp_replicate_size: 2\n",
         "dp_replicate_size is 2, which axolotl refuses together with");
  expect(false, "dp_shard_size: 2\n",
         "dp_shard_size is 2, which axolotl refuses without fsdp_config");
  expect(false, "dp_replicate_size: 2\ncontext_parallel_size: 2\n",
         "dp_replicate_size is 2, which axolotl refuses together with");
  expect(true, "expert_parallel_size: 9223372036854775807\ndp_shard_size: 3\n",
         "which makes too many ranks");
}

// accelerate refuses FSDP over one rank beside other sizes.
TEST(AxolotlSizes, LeaveFsdpRanksToShardOver) {
  const Reading reading =
      ReadSizesText(absl::StrCat(kFsdp, "tensor_parallel_size: 4\n"));
  EXPECT_THAT(plan_mesh(reading.config.mesh, 4, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("run.yaml:5: tensor_parallel_size is 4, "
                                 "which leaves FSDP no ranks to shard "
                                 "over")));
  EXPECT_TRUE(plan_mesh(reading.config.mesh, 8, 8).ok());
}

TEST(AxolotlSizes, ReportTwoFsdpVersions) {
  EXPECT_THAT(ReadSizesText("fsdp_version: 2\nfsdp_config: {fsdp_version: 1, "
                            "reshard_after_forward: true}\n")
                  .findings,
              Contains("problem run.yaml:4: fsdp_config.fsdp_version is 1, but "
                       "fsdp_version next to fsdp_config is 2; keep one of the "
                       "two"));
  for (const char* text : {"fsdp_version: 2\nfsdp_config: {fsdp_version: 2}\n",
                           "fsdp_config: {version: 2}\n"}) {
    const Reading reading = ReadSizesText(text);
    EXPECT_THAT(reading.findings, Each(Not(StartsWith("problem"))));
    EXPECT_EQ(*reading.config.sharding.fsdp_version, 2);
  }
}

}  // namespace
}  // namespace fsdp::config
