// SPDX-License-Identifier: Apache-2.0
// Saves that fail, as a trainer makes them: one rank's error is an error on
// all, and the same pools and plan caches serve the next save.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
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
using ::dcp::testing::NumPending;
using ::dcp::testing::RunRanks;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::Saver;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::World;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Random histories: states change, caches are lost, sources fail, on any
// ranks. Each save is whole or an error on all; nothing hangs.
TEST(AsyncSaveFault, SavesAreWholeOrFailOnAllRanks) {
  constexpr int64_t kNumRanks = 3;
  const SampleTensor extra("extra", DType::kInt8, {9});
  const auto seed = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
  SCOPED_TRACE(absl::StrCat("--gtest_random_seed=", seed));
  std::mt19937_64 random(seed);
  const auto chance = [&](uint64_t percent) {
    return random() % 100 < percent;
  };
  SimStorage fs;
  World world(kNumRanks);
  std::vector<bool> has_extra(kNumRanks);
  int num_good = 0;
  for (int save = 0; save < 150; ++save) {
    SCOPED_TRACE(absl::StrCat("save ", save));
    bool fails = false;
    for (size_t rank = 0; rank < kNumRanks; ++rank) {
      if (chance(15)) has_extra[rank] = !has_extra[rank];
      world.states[rank] = world.NewState(static_cast<int64_t>(rank));
      if (has_extra[rank]) world.states[rank]->Add(extra);
      if (chance(8)) world.savers[rank]->cache = SavePlanCache();
      world.savers[rank]->num_staged = 0;
      if (!chance(8)) continue;
      // A rank may hold a replica that no save reads from it.
      world.states[rank]->sources()[0]->FailAfter(
          0, absl::AbortedError("unplugged"));
      fails = true;
    }
    const std::string path = absl::StrCat("/step-", save);
    const std::vector<absl::Status> statuses = world.SaveAll(fs, path);
    if (!fails) {
      ASSERT_THAT(statuses, Each(IsOk()));
      std::vector<const SampleTensor*> tensors = {&world.sharded,
                                                  &world.replica};
      if (has_extra != std::vector<bool>(kNumRanks)) tensors.push_back(&extra);
      ExpectHolds(fs, path, tensors);
      ++num_good;
    } else {
      ASSERT_THAT(
          statuses,
          Each(StatusIs(absl::StatusCode::kAborted,
                        AllOf(HasSubstr("unplugged"), HasSubstr("rank ")))));
      EXPECT_THAT(fs.Stat(path), StatusIs(absl::StatusCode::kNotFound));
    }
    for (size_t rank = 0; rank < kNumRanks; ++rank) {
      EXPECT_EQ(NumPending(*world.states[rank]), 0u);
      const bool failed =
          absl::StrContains(statuses[0].message(), absl::StrCat("rank ", rank));
      EXPECT_LE(world.savers[rank]->num_staged, failed ? 0 : 1);
      EXPECT_GE(world.savers[rank]->num_staged, fails ? 0 : 1);
    }
    world.ExpectPoolsAreWhole();
  }
  EXPECT_GT(num_good, 50);
}

// Each disk operation fails once in a save by a kept plan. All ranks learn of
// the error, the checkpoint on the disk is complete, and the next save works
// with the same pools and caches.
TEST(AsyncSaveFault, TheNextSaveWorksAfterADiskFault) {
  for (const int error : {EIO, ENOSPC}) {
    bool finished = false;
    for (uint64_t n = 0; !finished; ++n) {
      SCOPED_TRACE(absl::StrCat("errno ", error, " at operation ", n));
      ASSERT_LT(n, 200u);
      SimStorage fs;
      World world(2);
      const std::vector<const SampleTensor*> tensors = {&world.sharded,
                                                        &world.replica};
      ASSERT_THAT(world.SaveAll(fs, "/a"), Each(IsOk()));
      const uint64_t before = fs.num_operations();
      fs.FailOperation(n, error);
      const std::vector<absl::Status> statuses = world.SaveAll(fs, "/b");
      finished = fs.num_operations() - before <= n;
      if (finished) break;  // the fault is still to come
      EXPECT_EQ(statuses[0].code(), statuses[1].code());
      EXPECT_EQ(fs.num_open_files(), 0u);
      if (fs.Stat("/b").ok()) {
        ExpectHolds(fs, "/b", tensors);
      } else {
        EXPECT_EQ(statuses[0].code(),
                  error == EIO ? absl::StatusCode::kUnavailable
                               : absl::StatusCode::kResourceExhausted);
      }
      ExpectHolds(fs, "/a", tensors);
      ASSERT_THAT(world.SaveAll(fs, "/b"), Each(IsOk()));
      ExpectHolds(fs, "/b", tensors);
      world.ExpectPoolsAreWhole();
      if (HasFailure()) return;
    }
  }
}

TEST(AsyncSaveFault, AFullDiskIsAnErrorOnAllAndLeavesRoom) {
  SimStorage fs({.capacity_bytes = 100 << 10});
  World world(2);
  ASSERT_THAT(world.SaveAll(fs, "/a"), Each(IsOk()));
  const SampleTensor big("big", DType::kInt8, {200 << 10});
  world.states[1]->Add(big);
  EXPECT_THAT(world.SaveAll(fs, "/b"),
              Each(StatusIs(absl::StatusCode::kResourceExhausted,
                            HasSubstr("rank 1"))));
  EXPECT_THAT(fs.Stat("/b"), StatusIs(absl::StatusCode::kNotFound));
  world.states[1] = world.NewState(1);
  ASSERT_THAT(world.SaveAll(fs, "/b"), Each(IsOk()));
  ExpectHolds(fs, "/b", {&world.sharded, &world.replica});
}

// Requests a stop when a save asks for bytes.
class StoppingSource final : public TensorSource {
 public:
  StoppingSource(std::stop_source& stop, uint64_t at) : stop_(stop), at_(at) {}
  absl::Status Fill(uint64_t offset, MutableByteSpan dst) override {
    std::fill(dst.begin(), dst.end(), uint8_t{0});
    if (offset + dst.size() > at_) stop_.request_stop();
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

 private:
  std::stop_source& stop_;
  const uint64_t at_;
};

// One rank is stopped, early or late, in a pool that holds all or streams.
TEST(AsyncSaveFault, AStopOfOneRankIsACancelOnAll) {
  for (const uint64_t num_blocks : {kMinBlocks, 2 * kMinBlocks}) {
    for (const uint64_t at : {uint64_t{0}, 5 * kBlockBytes}) {
      SCOPED_TRACE(absl::StrCat(num_blocks, " blocks, stop at ", at));
      SimStorage fs;
      World world(2, num_blocks);
      std::stop_source stop;
      StoppingSource source(stop, UINT64_MAX);
      SaveTensor tensor{.fqn = "stopping",
                        .dtype = DType::kInt8,
                        .shape = {6 * kBlockBytes},
                        .box = WholeBox({6 * kBlockBytes}),
                        .source = &source};
      world.states[1]->state().tensors.push_back(tensor);
      ASSERT_THAT(world.SaveAll(fs, "/a"), Each(IsOk()));
      StoppingSource stopping(stop, at);
      world.states[1]->state().tensors.back().source = &stopping;
      EXPECT_THAT(
          RunRanks(2,
                   [&](Coordinator& coordinator) {
                     const auto rank = static_cast<size_t>(coordinator.rank());
                     SaveOptions options = world.savers[rank]->Options();
                     if (rank == 1) options.stop = stop.get_token();
                     return Save(fs, "/b", world.states[rank]->state(),
                                 coordinator, options);
                   }),
          Each(StatusIs(absl::StatusCode::kCancelled, HasSubstr("rank 1"))));
      EXPECT_THAT(fs.Stat("/b"), StatusIs(absl::StatusCode::kNotFound));
      ASSERT_THAT(world.SaveAll(fs, "/b"), Each(IsOk()));
      ExpectHolds(fs, "/b", {&world.sharded, &world.replica});
      world.ExpectPoolsAreWhole();
    }
  }
}

// The connection breaks at each exchange, one after the other: no rank waits
// for ever, and a later save over another connection works.
class BreakingCoordinator final : public Coordinator {
 public:
  explicit BreakingCoordinator(int num_calls) : left_(num_calls) {}
  int64_t rank() const override { return 0; }
  int64_t num_ranks() const override { return 1; }
  absl::StatusOr<std::vector<std::string>> Gather(std::string mine) override {
    if (left_-- == 0) return absl::UnavailableError("the line is dead");
    return std::vector<std::string>{std::move(mine)};
  }
  absl::StatusOr<std::string> Scatter(
      std::vector<std::string> values) override {
    if (left_-- == 0) return absl::UnavailableError("the line is dead");
    return values[0];
  }
  bool broken() const { return left_ < 0; }

 private:
  int left_;
};

TEST(AsyncSaveFault, ABrokenConnectionEndsTheSave) {
  for (const bool with_plan : {false, true}) {
    int num_calls = 0;
    for (bool finished = false; !finished; ++num_calls) {
      SCOPED_TRACE(absl::StrCat(with_plan, " breaks at ", num_calls));
      ASSERT_LT(num_calls, 20);
      SimStorage fs;
      const SampleTensor tensor("w", DType::kFloat32, {6, 5});
      SampleState state;
      state.Add(tensor);
      Saver saver;
      SingleProcessCoordinator sound;
      if (with_plan) {
        ASSERT_OK(Save(fs, "/a", state.state(), sound, saver.Options()));
      }
      BreakingCoordinator breaking(num_calls);
      const absl::Status status =
          Save(fs, "/b", state.state(), breaking, saver.Options());
      finished = !breaking.broken();
      if (finished) {
        EXPECT_OK(status);
        break;
      }
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                   HasSubstr("the line is dead")));
      EXPECT_EQ(fs.num_open_files(), 0u);
      if (fs.Stat("/b").ok()) ExpectHolds(fs, "/b", {&tensor});
      ASSERT_OK(Save(fs, "/b", state.state(), sound, saver.Options()));
      ExpectHolds(fs, "/b", {&tensor});
    }
    EXPECT_GT(num_calls, 6);
  }
}

}  // namespace
}  // namespace dcp
