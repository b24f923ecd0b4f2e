// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/commands/signals.h"

#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "gtest/gtest.h"

namespace dcp::tools {
namespace {

// Waits until a stop is requested; the test's own time limit is the deadline.
void WaitForStop(std::stop_token token) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock<std::mutex> lock(mutex);
  stopped.wait(lock, token, [] { return false; });
}

TEST(SignalStopper, RequestsStopOnASignal) {
  for (int signal : {SIGHUP, SIGINT, SIGTERM}) {
    const SignalStopper stopper;
    EXPECT_FALSE(stopper.token().stop_requested());
    kill(getpid(), signal);
    WaitForStop(stopper.token());
    EXPECT_TRUE(stopper.token().stop_requested());
  }
}

TEST(SignalStopper, EndsWithoutASignal) { const SignalStopper stopper; }

TEST(SignalStopperDeathTest, SecondSignalEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const SignalStopper stopper;
        kill(getpid(), SIGINT);
        WaitForStop(stopper.token());
        kill(getpid(), SIGINT);
        // The signal is on its way; this thread has nothing else to do.
        while (true) pause();
      },
      ::testing::ExitedWithCode(130), "interrupted again");
}

}  // namespace
}  // namespace dcp::tools
