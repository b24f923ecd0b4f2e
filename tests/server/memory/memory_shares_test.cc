// SPDX-License-Identifier: Apache-2.0

#include "server/memory/memory_shares.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/memory/memory_budget.h"
#include "server/options/command_line.h"
#include "server/options/server_options.h"
#include "server/reading/stream_parts.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

absl::StatusOr<ServerOptions> ParseMemory(uint64_t max_mib, uint64_t job_mib,
                                          int64_t num_readers) {
  std::vector<std::string> flags = {
      "--root=/r", "--state-dir=/s",
      absl::StrCat("--num-readers=", num_readers),
      absl::StrCat("--max-memory=", max_mib, "MiB")};
  if (job_mib != 0) {
    flags.push_back(absl::StrCat("--job-memory=", job_mib, "MiB"));
  }
  return ParseServerOptions(flags);
}

// Whether the budget grants it at once.
bool Grants(MemoryBudget& budget, MemoryUse use, uint64_t bytes,
            Reservation& memory) {
  return budget
             .Request(use, bytes,
                      [&](Reservation granted) { memory = std::move(granted); })
             .ok() &&
         memory.bytes() == bytes;
}

// Expects that nothing waits on a server that has just started: a job with the
// default memory, a job with the most memory that may be requested, and a
// stream at the same time.
void ExpectNothingWaits(const ServerOptions& options) {
  const MemoryShares shares =
      DivideMemory(options.max_memory_bytes, options.num_readers);
  ASSERT_LE(shares.calls_bytes + shares.jobs_bytes, options.max_memory_bytes);
  ASSERT_LE(shares.readers_bytes(), shares.calls_bytes);
  MemoryBudget budget(options.max_memory_bytes, shares.calls_bytes);
  const Reservation readers = budget.Keep(shares.readers_bytes());
  ASSERT_GE(JobMemoryBytes(options), kMinMemoryBytes);
  for (const uint64_t bytes : {JobMemoryBytes(options), shares.jobs_bytes}) {
    Reservation job;
    ASSERT_TRUE(Grants(budget, MemoryUse::kJob, bytes, job)) << bytes;
    Reservation call;
    if (shares.num_readers == 0) continue;
    ASSERT_TRUE(Grants(budget, MemoryUse::kCall, 2 * kWindowBytes, call));
  }
}

// For every pair of values with which the server starts.
TEST(MemoryShares, GrantsAllThatOptionsAllow) {
  int num_accepted = 0;
  int num_refused = 0;
  for (const int64_t num_readers : {1, 4, 7, 256}) {
    for (uint64_t max_mib = 16; max_mib <= 8192;
         max_mib += max_mib < 320 ? 4 : max_mib / 4) {
      for (const uint64_t job_mib : std::vector<uint64_t>{
               0, 16, 17, 100, 256, 300, 512, 900, max_mib * 2 / 3,
               max_mib * 3 / 4, max_mib - 1, max_mib, max_mib + 1}) {
        const auto options = ParseMemory(max_mib, job_mib, num_readers);
        ++(options.ok() ? num_accepted : num_refused);
        if (!options.ok()) continue;
        SCOPED_TRACE(absl::StrCat(max_mib, " ", job_mib, " ", num_readers));
        ExpectNothingWaits(*options);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(num_accepted, 1000);
  EXPECT_GT(num_refused, 1000);
}

TEST(MemoryShares, RefusesOptionsThatCannotRunAJob) {
  for (const auto& [max_mib, job_mib] :
       std::vector<std::pair<uint64_t, uint64_t>>{
           {512, 512}, {1024, 900}, {256, 256}}) {
    EXPECT_THAT(ParseMemory(max_mib, job_mib, 4),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("leaves to jobs")));
  }
  // Without an option for jobs, they get the rest.
  for (const uint64_t max_mib : {64, 256, 300})
    EXPECT_OK(ParseMemory(max_mib, 0, 4));
}

TEST(MemoryShares, HasNoReadersWithLittleMemory) {
  const MemoryShares shares = DivideMemory(kMinReadingBytes - 1, 4);
  EXPECT_EQ(shares.num_readers, 0);
  EXPECT_EQ(shares.readers_bytes(), 0u);
  EXPECT_EQ(shares.jobs_bytes, kMinReadingBytes - 1);
  EXPECT_EQ(DivideMemory(kMinReadingBytes, 4).num_readers, 1);
}

TEST(MemoryShares, ReadersTakeAtMostAQuarter) {
  for (uint64_t mib = 64; mib < 5000; mib += 64) {
    EXPECT_LE(DivideMemory(mib * kMiB, 256).readers_bytes(), mib * kMiB / 4);
  }
}

}  // namespace
}  // namespace dcp::server
