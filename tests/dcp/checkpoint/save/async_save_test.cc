// Saves as a trainer makes them: the same pool and the same plan cache for
// one after the other, copying before the ranks speak, and faults on the way.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/load.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/save_plan_cache.h"
#include "dcp/checkpoint/verify.h"
#include "dcp/io/block_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/thread_coordinator.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOk;
using ::dcp::testing::MemorySink;
using ::dcp::testing::MemorySource;
using ::dcp::testing::RunRanks;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

uint64_t NumFilled(const SampleState& state) {
  uint64_t num_bytes = 0;
  for (const auto& source : state.sources()) {
    num_bytes += source->num_filled_bytes();
  }
  return num_bytes;
}

size_t NumPending(const SampleState& state) {
  size_t num = 0;
  for (const auto& source : state.sources()) num += source->num_pending();
  return num;
}

// Tells of every meeting before it happens.
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

// The state that one rank keeps from save to save.
struct Saver {
  explicit Saver(uint64_t num_blocks = kMinBlocks) : pool(num_blocks) {}

  SaveOptions Options() {
    SaveOptions options;
    options.pool = &pool;
    options.plan_cache = &cache;
    options.on_staged = [this] { ++num_staged; };
    return options;
  }

  BlockPool pool;
  SavePlanCache cache;
  int num_staged = 0;
};

void ExpectSound(FileSystem& fs, absl::string_view path) {
  VerifyOptions options;
  options.memory_bytes = kMinMemoryBytes;
  const auto report = VerifyCheckpoint(fs, path, std::move(options));
  ASSERT_OK(report);
  for (const VerifyFinding& finding : report->findings) {
    ADD_FAILURE() << finding.name << ": " << finding.problem;
  }
}

void ExpectHolds(FileSystem& fs, absl::string_view path,
                 const std::vector<const SampleTensor*>& tensors) {
  ExpectSound(fs, path);
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(fs, path, {}));
  std::vector<std::unique_ptr<MemorySink>> sinks;
  std::vector<LoadTensor> wanted;
  for (const SampleTensor* tensor : tensors) {
    sinks.push_back(std::make_unique<MemorySink>(tensor->bytes.size()));
    wanted.push_back({.fqn = tensor->fqn,
                      .dtype = tensor->dtype,
                      .shape = tensor->shape,
                      .box = WholeBox(tensor->shape),
                      .sink = sinks.back().get()});
  }
  ASSERT_OK(Load(fs, *checkpoint, wanted, {.memory_bytes = kMinMemoryBytes}));
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(sinks[i]->bytes() == tensors[i]->bytes) << tensors[i]->fqn;
  }
}

TEST(AsyncSave, ALargePoolTakesAllBeforeAnythingIsWritten) {
  SimStorage fs;
  const SampleTensor big("big", DType::kFloat32, {5, 1 << 20});
  SampleState state;
  state.Add(big);
  state.AddObject("step", Value::Int(3));
  const uint64_t bytes = StagingBytes(state.state());
  EXPECT_EQ(bytes, 6 * kBlockBytes);  // 5 of payload, and what is around it
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
  // With the plan not even the directory was made.
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

// Two rows for each rank, and replicas that the ranks share.
struct World {
  explicit World(int64_t num, uint64_t num_blocks = kMinBlocks)
      : num_ranks(num),
        sharded("sharded", DType::kFloat32, {2 * num, 5}),
        replica("replica", DType::kInt64, {100}) {
    for (int64_t rank = 0; rank < num; ++rank) {
      savers.push_back(std::make_unique<Saver>(num_blocks));
      states.push_back(NewState(rank));
    }
  }

  std::unique_ptr<SampleState> NewState(int64_t rank) const {
    auto state = std::make_unique<SampleState>();
    state->Add(sharded, {{2 * rank, 0}, {2, 5}});
    state->Add(replica);
    state->AddObject("step", Value::Int(7));
    return state;
  }

  std::vector<absl::Status> SaveAll(FileSystem& fs, absl::string_view path) {
    return RunRanks(num_ranks, [&](Coordinator& coordinator) {
      const auto rank = static_cast<size_t>(coordinator.rank());
      return Save(fs, path, states[rank]->state(), coordinator,
                  savers[rank]->Options());
    });
  }

  void ExpectPoolsAreWhole() const {
    for (const auto& saver : savers) {
      EXPECT_EQ(saver->pool.num_free(), saver->pool.num_blocks());
    }
  }

  const int64_t num_ranks;
  const SampleTensor sharded;
  const SampleTensor replica;
  std::vector<std::unique_ptr<Saver>> savers;
  std::vector<std::unique_ptr<SampleState>> states;
};

TEST(AsyncSave, TheSecondCopiesBeforeTheRanksMeet) {
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

// A plan of other ranks is none, even if this rank's part looks the same.
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
  // It lacks what the others counted on.
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

// Random histories: states change, caches are lost, sources fail, on any
// ranks. Each save is whole or an error on all; nothing hangs.
TEST(AsyncSave, WhateverHappenedBeforeASaveIsWholeOrAnErrorOnAll) {
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
      // It may hold a replica that it is not asked for.
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

// Each operation of the disk fails once in a save by a kept plan. All ranks
// hear of it, what is there is whole, and the next save works with the same
// pools and caches.
TEST(AsyncSave, AfterAFaultOfTheDiskTheNextSaveWorks) {
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

TEST(AsyncSave, AFullDiskIsAnErrorOnAllAndLeavesRoom) {
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

// Requests a stop when it is asked for its bytes.
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
TEST(AsyncSave, AStopOfOneRankIsACancelOnAll) {
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

// The connection breaks at each meeting in turn: nobody waits for ever, and a
// later save over another connection works.
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

TEST(AsyncSave, ABrokenConnectionEndsTheSave) {
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
