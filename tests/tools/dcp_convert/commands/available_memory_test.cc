// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/commands/available_memory.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(AvailableMemory, IsTheMinimumOfGroupsAndMachine) {
  const TempDir root;
  root.WriteFile("proc/meminfo",
                 "MemTotal: 9000000 kB\nMemAvailable:   1048576 kB\n"
                 "SwapFree: 1024 kB\n");
  EXPECT_EQ(FindAvailableMemory(root.path()).bytes, 1025 * kMiB);
  root.WriteFile("proc/self/cgroup", "1:cpu:/x\n0::/outer/inner\n");
  root.WriteFile("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  EXPECT_EQ(FindAvailableMemory(root.path()).bytes, 1025 * kMiB);
  // The page cache does not count; the parent group has a limit too.
  root.WriteFile("sys/fs/cgroup/outer/memory.max", "104857600\n");
  root.WriteFile("sys/fs/cgroup/outer/memory.stat",
                 "anon 10485760\nfile 90000000\nshmem 1048576\n");
  const AvailableMemory available = FindAvailableMemory(root.path());
  EXPECT_EQ(available.bytes, 89 * kMiB);
  EXPECT_THAT(available.limit, HasSubstr("control group /outer"));
}

TEST(AvailableMemory, UnreadableFilesSetNoLimit) {
  const TempDir root;
  root.WriteFile("proc/self/cgroup", "0::/\n");
  root.WriteFile("sys/fs/cgroup/memory.max", "plenty\n");
  EXPECT_GT(FindAvailableMemory(root.path()).bytes, uint64_t{1} << 60);
}

TEST(AvailableMemory, RefusesMoreWithTheFigures) {
  const AvailableMemory available{.bytes = 90 * kMiB, .limit = "a limit"};
  EXPECT_OK(CheckAvailableMemory(90 * kMiB, available));
  EXPECT_THAT(CheckAvailableMemory(91 * kMiB, available),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("91 MiB"), HasSubstr("90 MiB"),
                             HasSubstr("a limit"), HasSubstr("--max-memory"))));
}

}  // namespace
}  // namespace dcp::tools
