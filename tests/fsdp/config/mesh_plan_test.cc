#include "fsdp/config/mesh_plan.h"

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
  return {.data_parallel_replicate_degree = replicate,
          .data_parallel_shard_degree = shard,
          .tensor_parallel_degree = tensor};
}

TEST(PlanMesh, ShardsOverAllRanksUnlessToldOtherwise) {
  EXPECT_THAT(plan_mesh({}, 6, 6), IsOkAndHolds(MeshPlan{1, 6, 1}));
}

TEST(PlanMesh, MinusOneIsTheRestOfTheRanks) {
  EXPECT_THAT(plan_mesh(Degrees(2, kShardOverRest), 8, 8),
              IsOkAndHolds(MeshPlan{2, 4, 1}));
  EXPECT_THAT(plan_mesh(Degrees(2, kShardOverRest, 2), 8, 8),
              IsOkAndHolds(MeshPlan{2, 2, 2}));
  EXPECT_THAT(plan_mesh(Degrees(kReplicateOverRest, 1), 4, 4),
              IsOkAndHolds(MeshPlan{4, 1, 1}));
}

TEST(PlanMesh, HybridShardsWithinAMachine) {
  EXPECT_THAT(plan_mesh(Degrees(1, kShardWithinNode), 16, 8),
              IsOkAndHolds(MeshPlan{2, 8, 1}));
  EXPECT_THAT(plan_mesh(Degrees(1, kShardWithinNode), 4, 4),
              IsOkAndHolds(MeshPlan{1, 4, 1}));
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

}  // namespace
}  // namespace fsdp
