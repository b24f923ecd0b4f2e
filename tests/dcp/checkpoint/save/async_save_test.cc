// SPDX-License-Identifier: Apache-2.0
// Saves as a trainer makes them: one after the other with the same pool and the
// same plan cache, copying before the ranks communicate.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/save_plan_cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/save/save_world.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/thread_coordinator.h"

namespace dcp {
namespace {

using ::dcp::testing::ExpectHolds;
using ::dcp::testing::IsOk;
using ::dcp::testing::MemorySource;
using ::dcp::testing::NumFilled;
using ::dcp::testing::NumPending;
using ::dcp::testing::RunRanks;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::Saver;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::World;
using ::testing::Each;
using ::testing::HasSubstr;

// Reports every exchange before it happens.
class WatchedCoordinator final : public Coordinator {
 public:
  WatchedCoordinator(Coordinator& coordinator, std::function<void()> on_gather)
      : coordinator_(coordinator), on_gather_(std::move(on_gather)) {}
  int64_t rank() const override { return coordinator_.rank(); }
  int64_t num_ranks() const override { return coordinator_.num_ranks(); }
  absl::StatusOr<std::vector<std::string>> Gather(std::string mine) override {
    on_gather_();
    return coordinator_.Gather(std::move(mine));
  }
  absl::StatusOr<std::string> Scatter(
      std::vector<std::string> values) override {
    return coordinator_.Scatter(std::move(values));
  }

 private:
  Coordinator& coordinator_;
  const std::function<void()> on_gather_;
};

TEST(AsyncSave, ALargePoolTakesAllBeforeAnythingIsWritten) {
  SimStorage fs;
  const SampleTensor big("big", DType::kFloat32, {5, 1 << 20});
  SampleState state;
  state.Add(big);
  state.AddObject("step", Value::Int(3));
  const uint64_t bytes = StagingBytes(state.state());
  // 5 blocks of payload, and the bytes around it
  EXPECT_EQ(bytes, 6 * kBlockBytes);
  Saver saver(bytes / kBlockBytes);
  SingleProcessCoordinator coordinator;
  SaveOptions options = saver.Options();
  uint64_t mutations = 0;
  uint64_t mutations_then = UINT64_MAX;
  uint64_t filled_then = 0;
  options.on_staged = [&] {
    mutations_then = fs.num_mutations();
    filled_then = NumFilled(state);
    EXPECT_EQ(NumPending(state), 0u);
  };
  ASSERT_OK(Save(fs, "/a", state.state(), coordinator, options));
  EXPECT_EQ(filled_then, big.bytes.size());
  mutations = fs.num_mutations();
  ASSERT_OK(Save(fs, "/b", state.state(), coordinator, options));
  // With the plan, not even the directory was made.
  EXPECT_EQ(mutations_then, mutations);
  EXPECT_EQ(filled_then, 2 * big.bytes.size());
  EXPECT_EQ(NumFilled(state), 2 * big.bytes.size());
  ExpectHolds(fs, "/a", {&big});
  ExpectHolds(fs, "/b", {&big});
}

TEST(AsyncSave, AStateStreamsThroughASmallPool) {
  SimStorage fs({.percent_short = 10, .percent_interrupted = 10});
  const SampleTensor big("big", DType::kFloat32, {6, (1 << 20) + 1});
  SampleState state;
  MemorySource& source = state.Add(big);
  Saver saver;
  SingleProcessCoordinator coordinator;
  SaveOptions options = saver.Options();
  uint64_t filled_then = 0;
  options.on_staged = [&] {
    ++saver.num_staged;
    filled_then = source.num_filled_bytes();
    EXPECT_EQ(source.num_pending(), 0u);
  };
  for (uint64_t i = 1; i <= 2; ++i) {
    ASSERT_OK(Save(fs, "/c", state.state(), coordinator, options));
    EXPECT_EQ(saver.num_staged, static_cast<int>(i));
    EXPECT_EQ(filled_then, i * big.bytes.size());
    EXPECT_EQ(saver.pool.num_free(), saver.pool.num_blocks());
    ExpectHolds(fs, "/c", {&big});
  }
}

TEST(AsyncSave, AnEmptyStateIsStagedToo) {
  SimStorage fs;
  SampleState states[2];
  const SampleTensor only("w", DType::kFloat32, {3});
  states[0].Add(only);
  Saver savers[2];
  for (int i = 1; i <= 2; ++i) {
    EXPECT_THAT(RunRanks(2,
                         [&](Coordinator& coordinator) {
                           const auto rank = coordinator.rank();
                           return Save(fs, "/c", states[rank].state(),
                                       coordinator, savers[rank].Options());
                         }),
                Each(IsOk()));
    EXPECT_EQ(savers[0].num_staged, i);
    EXPECT_EQ(savers[1].num_staged, i);
    ExpectHolds(fs, "/c", {&only});
  }
}

TEST(AsyncSave, RefusesAPoolThatIsTooSmall) {
  SimStorage fs;
  SampleState state;
  state.Add(SampleTensor("a", DType::kFloat32, {3}));
  Saver saver(kMinBlocks - 1);
  SingleProcessCoordinator coordinator;
  EXPECT_THAT(
      Save(fs, "/c", state.state(), coordinator, saver.Options()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3 free blocks")));
  EXPECT_EQ(saver.num_staged, 0);
  EXPECT_THAT(fs.Stat("/c"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(AsyncSave, TheSecondSaveCopiesBeforeTheRanksMeet) {
  SimStorage fs;
  World world(3);
  std::vector<uint64_t> filled_first(3);
  for (int save = 0; save < 3; ++save) {
    std::vector<int> num_gathers(3);
    EXPECT_THAT(RunRanks(3,
                         [&](Coordinator& coordinator) {
                           const auto rank =
                               static_cast<size_t>(coordinator.rank());
                           const SampleState& state = *world.states[rank];
                           WatchedCoordinator watched(coordinator, [&, rank] {
                             if (num_gathers[rank]++ == 0) {
                               filled_first[rank] = NumFilled(state);
                             }
                           });
                           const uint64_t before = NumFilled(state);
                           const absl::Status status = Save(
                               fs, absl::StrCat("/step-", save), state.state(),
                               watched, world.savers[rank]->Options());
                           const uint64_t copied = NumFilled(state) - before;
                           EXPECT_GT(copied, 0u);
                           EXPECT_EQ(filled_first[rank],
                                     save == 0 ? before : before + copied);
                           return status;
                         }),
                Each(IsOk()));
    // Without a plan the items are gathered too.
    EXPECT_THAT(num_gathers, Each(save == 0 ? 5 : 4));
    ExpectHolds(fs, absl::StrCat("/step-", save),
                {&world.sharded, &world.replica});
  }
}

// Other ranks' plan does not count, even if this rank's part looks the same.
TEST(AsyncSave, APlanForOtherRanksIsNotKept) {
  SimStorage fs;
  World world(2);
  ASSERT_THAT(world.SaveAll(fs, "/a"), Each(IsOk()));
  SingleProcessCoordinator alone;
  EXPECT_THAT(Save(fs, "/b", world.states[0]->state(), alone,
                   world.savers[0]->Options()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("10 of 20 elements")));
  EXPECT_THAT(fs.Stat("/b"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(AsyncSave, ARankMayComeWithAnotherStateAtAnyTime) {
  SimStorage fs;
  World world(3);
  ASSERT_THAT(world.SaveAll(fs, "/a"), Each(IsOk()));
  const SampleTensor extra("extra", DType::kInt8, {9});
  world.states[1]->Add(extra);
  ASSERT_THAT(world.SaveAll(fs, "/b"), Each(IsOk()));
  ExpectHolds(fs, "/b", {&world.sharded, &world.replica, &extra});
  world.savers[2]->cache = SavePlanCache();
  ASSERT_THAT(world.SaveAll(fs, "/c"), Each(IsOk()));
  ExpectHolds(fs, "/c", {&world.sharded, &world.replica, &extra});
  // It lacks tensors that the other ranks relied on.
  world.states[1] = std::make_unique<SampleState>();
  EXPECT_THAT(
      world.SaveAll(fs, "/d"),
      Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sharded"))));
  EXPECT_THAT(fs.Stat("/d"), StatusIs(absl::StatusCode::kNotFound));
  world.states[1] = world.NewState(1);
  ASSERT_THAT(world.SaveAll(fs, "/e"), Each(IsOk()));
  ExpectHolds(fs, "/e", {&world.sharded, &world.replica});
  for (const auto& saver : world.savers) EXPECT_EQ(saver->num_staged, 4);
  world.ExpectPoolsAreWhole();
}

}  // namespace
}  // namespace dcp
