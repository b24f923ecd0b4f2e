// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/steady_time.h"

#include <thread>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(SteadyCondVar, AWaitEndsAtItsDeadline) {
  absl::Mutex mutex;
  SteadyCondVar never;
  const absl::Duration end = SteadyNow() + absl::Milliseconds(5);
  absl::MutexLock lock(&mutex);
  while (!never.WaitUntil(&mutex, end)) {
  }
  EXPECT_GE(SteadyNow(), end);
  EXPECT_TRUE(never.WaitUntil(&mutex, absl::ZeroDuration()));
  EXPECT_TRUE(never.WaitUntil(&mutex, -absl::InfiniteDuration()));
}

// Two threads take turns, so that one lost signal would end the test at the
// time limit.
TEST(SteadyCondVar, LosesNoSignal) {
  constexpr int kNumTurns = 20000;
  absl::Mutex mutex;
  SteadyCondVar changed;
  int turn = 0;
  const auto play = [&](int mine) {
    absl::MutexLock lock(&mutex);
    while (turn < kNumTurns) {
      while (turn % 2 != mine && turn < kNumTurns) changed.Wait(&mutex);
      ++turn;
      changed.Signal();
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_GE(turn, kNumTurns);
}

TEST(SteadyCondVar, WakesAllWaiters) {
  absl::Mutex mutex;
  SteadyCondVar changed;
  bool open = false;
  int num_through = 0;
  const auto pass = [&] {
    absl::MutexLock lock(&mutex);
    while (!open) {
      EXPECT_FALSE(changed.WaitUntil(&mutex, absl::InfiniteDuration()));
    }
    ++num_through;
  };
  std::thread a(pass);
  std::thread b(pass);
  {
    absl::MutexLock lock(&mutex);
    open = true;
    changed.SignalAll();
  }
  a.join();
  b.join();
  EXPECT_EQ(num_through, 2);
}

}  // namespace
}  // namespace dcp
