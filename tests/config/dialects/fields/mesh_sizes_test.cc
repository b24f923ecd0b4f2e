// SPDX-License-Identifier: Apache-2.0
// parallelism_config as accelerate's ParallelismConfig takes it.
#include "config/dialects/fields/mesh_sizes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "config/explain/mesh_plan.h"
#include "config/read_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// accelerate's file or transformers' file, with the same sizes.
ReadConfig ReadSized(bool is_fsdp, absl::string_view sizes) {
  return read_config_text(
      "a.yaml",
      absl::StrCat("distributed_type: ", is_fsdp ? "FSDP" : "MULTI_GPU",
                   "\nfsdp_config: {fsdp_version: 2}\nparallelism_config: {",
                   sizes, "}\n"));
}
ReadConfig ReadSizedArguments(bool is_fsdp, absl::string_view sizes) {
  return read_config_text(
      "a.json",
      absl::StrCat("{\"bf16\": true, \"fsdp\": ", is_fsdp ? "true" : "false",
                   ", \"parallelism_config\": {", sizes, "}}"));
}

void ExpectPlan(bool is_fsdp, absl::string_view sizes, MeshPlan expected) {
  for (const ReadConfig& read :
       {ReadSized(is_fsdp, sizes), ReadSizedArguments(is_fsdp, sizes)}) {
    EXPECT_THAT(TextsOf(read.findings), Each(Not(StartsWith("problem"))));
    const absl::StatusOr<MeshPlan> plan = plan_mesh(read.config.mesh, 8, 8);
    ASSERT_TRUE(plan.ok()) << sizes << plan.status();
    EXPECT_EQ(*plan, expected) << sizes;
  }
}

void ExpectRefused(bool is_fsdp, absl::string_view sizes,
                   absl::string_view problem) {
  for (const ReadConfig& read :
       {ReadSized(is_fsdp, sizes), ReadSizedArguments(is_fsdp, sizes)}) {
    EXPECT_THAT(TextsOf(read.findings),
                Contains(HasSubstr(std::string(problem))))
        << sizes;
  }
}

TEST(MeshSizes, MatchAccelerate) {
  ExpectPlan(true, "", {.shard = 8});
  ExpectPlan(true, "\"dp_shard_size\": 1", {.shard = 8});
  ExpectPlan(true, "\"dp_shard_size\": 8", {.shard = 8});
  ExpectPlan(true, "\"dp_shard_size\": 4, \"tp_size\": 2",
             {.shard = 4, .tensor_parallel = 2});
  ExpectPlan(true, "\"cp_size\": 8", {.context_parallel = 8});
  ExpectPlan(true, "\"dp_replicate_size\": 2, \"dp_shard_size\": 4",
             {.replicate = 2, .shard = 4});
  ExpectPlan(false, "\"tp_size\": 8", {.tensor_parallel = 8});
  ExpectPlan(false, "\"dp_replicate_size\": 8", {.replicate = 8});
  ExpectPlan(false, "\"tp_size\": 1", {.replicate = 8});
  ExpectPlan(false, "\"dp_replicate_size\": 1, \"dp_shard_size\": 1",
             {.replicate = 8});
}

TEST(MeshSizes, AbsentSizesBesideOthersAre1) {
  // Four shards would have been the rest.
  const ReadConfig read =
      ReadSized(true, "dp_replicate_size: 1, dp_shard_size: 2, tp_size: 2");
  EXPECT_FALSE(plan_mesh(read.config.mesh, 8, 8).ok());
}

TEST(MeshSizes, ReportSizesThatAccelerateRefuses) {
  constexpr absl::string_view kNothing = "FSDP has no ranks to shard over";
  ExpectRefused(true, "\"tp_size\": 2", kNothing);
  ExpectRefused(true, "\"tp_size\": 8", kNothing);
  ExpectRefused(true, "\"dp_replicate_size\": 2", kNothing);
  constexpr absl::string_view kCut = "copies are not combined with";
  ExpectRefused(true, "\"dp_replicate_size\": 2, \"cp_size\": 4", kCut);
  ExpectRefused(false, "\"dp_replicate_size\": 2, \"tp_size\": 4", kCut);
  ExpectRefused(false, "\"cp_size\": 8", "share sequences only with FSDP");
  ExpectRefused(false, "\"dp_shard_size\": 8", "is 8, but");
  ExpectRefused(true, "\"dp_shard_size\": 4, \"ep_size\": 2",
                "ep_size is 2, which is not supported: neither accelerate nor");
}

TEST(MeshSizes, Version1HasNoSizes) {
  EXPECT_THAT(
      TextsOf(read_config_text("a.yaml",
                               "distributed_type: FSDP\nfsdp_config: "
                               "{fsdp_version: 1}\nparallelism_config: "
                               "{parallelism_config_dp_shard_size: 8}\n")
                  .findings),
      Contains(HasSubstr("fsdp_version is 1, which has no mesh sizes")));
}

TEST(MeshSizes, AcceleratesFileNeedsThePrefix) {
  EXPECT_THAT(
      TextsOf(ReadSized(true, "dp_shard_size: 8").findings),
      Contains("changed a.yaml:3: parallelism_config.dp_shard_size is read as "
               "parallelism_config_dp_shard_size; accelerate itself passes "
               "over it without that prefix"));
}

}  // namespace
}  // namespace fsdp::config
