// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of saves: ranks that keep their pools and plan caches
// from save to save, and checks that a checkpoint holds the right tensors. A
// failure counts for the calling test.
#ifndef TESTS_DCP_CHECKPOINT_SAVE_SAVE_WORLD_H_
#define TESTS_DCP_CHECKPOINT_SAVE_SAVE_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/save_plan_cache.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/thread_coordinator.h"

namespace dcp::testing {

// How many bytes the state's sources have been asked for, and how many copies
// are not flushed.
uint64_t NumFilled(const SampleState& state);
size_t NumPending(const SampleState& state);

// Expects that the checkpoint at `path` is sound and holds `tensors`.
void ExpectHolds(FileSystem& fs, absl::string_view path,
                 const std::vector<const SampleTensor*>& tensors);

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

}  // namespace dcp::testing

#endif  // TESTS_DCP_CHECKPOINT_SAVE_SAVE_WORLD_H_
