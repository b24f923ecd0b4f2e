// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/peak_memory.h"

#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(PeakMemory, ReadsTheLineOfTheKernel) {
  EXPECT_EQ(PeakMemoryFrom("Name:\tx\nVmHWM:\t    5120 kB\nVmRSS:\t 1 kB\n"),
            uint64_t{5120} * 1024);
}

TEST(PeakMemory, IsZeroWithoutTheKernelsLine) {
  EXPECT_EQ(PeakMemoryFrom(""), 0u);
  EXPECT_EQ(PeakMemoryFrom("VmHWM:\tmuch\n"), 0u);
}

TEST(PeakMemory, IsKnownForThisProcess) {
  EXPECT_GT(PeakMemoryBytes(), uint64_t{100'000});
}

}  // namespace
}  // namespace dcp
