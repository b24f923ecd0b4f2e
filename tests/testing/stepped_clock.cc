// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/stepped_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace dcp::testing {
namespace {

std::atomic<int64_t> step_s = 0;

}  // namespace

void SetClockStep(absl::Duration step) { step_s = absl::ToInt64Seconds(step); }

}  // namespace dcp::testing

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto failed = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (failed == 0 && clock == CLOCK_REALTIME) {
    now->tv_sec += dcp::testing::step_s.load();
  }
  return failed;
}
