// SPDX-License-Identifier: Apache-2.0

#include "config/explain/mesh_plan.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

MeshConfig Degrees(int64_t replicate, int64_t shard, int64_t tensor = 1) {
  MeshConfig mesh;
  mesh.data_parallel_replicate_degree = replicate;
  mesh.data_parallel_shard_degree = shard;
  mesh.tensor_parallel_degree = tensor;
  return mesh;
}

MeshPlan Plan(int64_t replicate, int64_t shard, int64_t tensor) {
  return {.replicate = replicate, .shard = shard, .tensor_parallel = tensor};
}

TEST(PlanMesh, ShardsOverAllRanksByDefault) {
  EXPECT_THAT(plan_mesh({}, 6, 6), IsOkAndHolds(Plan(1, 6, 1)));
}

TEST(PlanMesh, MinusOneMeansTheRest) {
  EXPECT_THAT(plan_mesh(Degrees(2, kShardOverRest), 8, 8),
              IsOkAndHolds(Plan(2, 4, 1)));
  EXPECT_THAT(plan_mesh(Degrees(2, kShardOverRest, 2), 8, 8),
              IsOkAndHolds(Plan(2, 2, 2)));
  EXPECT_THAT(plan_mesh(Degrees(kReplicateOverRest, 1), 4, 4),
              IsOkAndHolds(Plan(4, 1, 1)));
}

TEST(PlanMesh, HybridShardsWithinAMachine) {
  EXPECT_THAT(plan_mesh(Degrees(1, kShardWithinNode), 16, 8),
              IsOkAndHolds(Plan(2, 8, 1)));
  EXPECT_THAT(plan_mesh(Degrees(1, kShardWithinNode), 4, 4),
              IsOkAndHolds(Plan(1, 4, 1)));
  EXPECT_THAT(plan_mesh(Degrees(1, kShardWithinNode), 12, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("12 ranks (8 on a machine)")));
}

TEST(PlanMesh, DegreesMustMultiplyToTheRanks) {
  MeshConfig mesh = Degrees(2, 3);
  mesh.data_parallel_shard_degree = Setting<int64_t>(
      3, {.file = "run.toml", .line = 7, .key = "parallelism.dp_shard"});
  EXPECT_THAT(plan_mesh(mesh, 8, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("run.toml:7: parallelism.dp_shard is 3"),
                             HasSubstr("8 ranks"))));
  EXPECT_THAT(plan_mesh(Degrees(16, kShardOverRest), 8, 8),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(plan_mesh(Degrees(1, kShardOverRest, 3), 8, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("does not divide 8")));
  for (const MeshConfig& none :
       {Degrees(0, 8), Degrees(8, 0), Degrees(-3, 1), Degrees(1, -3),
        Degrees(1, 8, 0), Degrees(INT64_MAX, INT64_MAX)}) {
    EXPECT_THAT(plan_mesh(none, 8, 8),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(PlanMesh, OtherParallelismsTakeTheirRanksFirst) {
  MeshConfig mesh = Degrees(2, kShardOverRest, 2);
  mesh.context_parallel_degree = 2;
  mesh.pipeline_parallel_degree = 2;
  mesh.expert_parallel_degree = 4;
  mesh.expert_tensor_parallel_degree = 2;
  EXPECT_THAT(plan_mesh(mesh, 32, 8),
              IsOkAndHolds(MeshPlan{.pipeline_parallel = 2,
                                    .replicate = 2,
                                    .shard = 2,
                                    .context_parallel = 2,
                                    .tensor_parallel = 2,
                                    .expert_parallel = 4,
                                    .expert_tensor_parallel = 2}));
  EXPECT_EQ((MeshPlan{.shard = 3, .context_parallel = 2}.num_shards()), 6);
  // The machine's ranks that share neither layers nor sequences.
  mesh = Degrees(1, kShardWithinNode, 2);
  mesh.context_parallel_degree = 2;
  EXPECT_THAT(plan_mesh(mesh, 32, 16),
              IsOkAndHolds(MeshPlan{.replicate = 2,
                                    .shard = 4,
                                    .context_parallel = 2,
                                    .tensor_parallel = 2}));
}

TEST(PlanMesh, NamesADegreeThatDoesNotFit) {
  const auto refuses = [](MeshConfig mesh, const std::string& what) {
    EXPECT_THAT(plan_mesh(mesh, 8, 8),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  MeshConfig mesh = Degrees(1, kShardOverRest, 2);
  mesh.context_parallel_degree = 3;
  refuses(mesh,
          "context_parallel_degree is 3, which does not divide the 4 ranks "
          "that other degrees leave of 8");
  mesh.context_parallel_degree = 0;
  refuses(mesh, "context_parallel_degree is 0, less than 1");
  mesh = Degrees(2, 2);
  mesh.pipeline_parallel_degree = 4;
  refuses(mesh, "pipeline_parallel_degree is 4: they do not multiply to 8");
  mesh = Degrees(2, 2, 2);
  mesh.expert_parallel_degree = 8;
  refuses(mesh,
          "expert_parallel_degree is 8: experts are divided among the 4 ranks");
  mesh.expert_parallel_degree = 4;
  mesh.expert_tensor_parallel_degree = 2;
  refuses(mesh,
          "expert_parallel_degree is 4 and expert_tensor_parallel_degree is 2: "
          "experts are divided among the 4 ranks");
  mesh.expert_tensor_parallel_degree = 4;
  refuses(mesh,
          "expert_tensor_parallel_degree is 4, neither 1 nor "
          "tensor_parallel_degree is 2");
}

}  // namespace
}  // namespace fsdp
