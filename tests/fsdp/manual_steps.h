// SPDX-License-Identifier: Apache-2.0
// For tests of steps that end by hand: a sharded tower in which
// finalize_backward ends backwards. Inside the processes that RunRanks starts.
#ifndef TESTS_FSDP_MANUAL_STEPS_H_
#define TESTS_FSDP_MANUAL_STEPS_H_

#include <functional>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/sharded_tower.h"
#include "tests/testing/ranks.h"

namespace fsdp::testing {

inline Sharded ShardManually(const FullyShardOptions& options = {}) {
  Sharded s = ShardTower(options);
  s.root.set_manual_backward_finalization(true);
  return s;
}

inline void Step(Sharded& s) {
  s.Forward();
  s.Backward();
}

// Nothing is communicated before an error.
inline void ExpectRefuses(Sharded& s, const std::function<void()>& call,
                          const std::vector<std::string>& says) {
  s.counts->Reset();
  ExpectError<c10::Error>(call, says);
  EXPECT_THAT(s.Counts(), ::testing::IsEmpty());
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_MANUAL_STEPS_H_
