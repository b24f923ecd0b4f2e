// SPDX-License-Identifier: Apache-2.0
// Runs the dcp-server process under more load than it can serve at once:
// hundreds of jobs and streams, and clients that do not read, that vanish, or
// that are hostile. Each client gets a fair share and leaves nothing behind,
// and the server keeps serving the others within the memory limit. --jobs,
// --streams and --connections set the numbers.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "google/protobuf/util/time_util.h"
#include "gtest/gtest.h"
#include "tests/server/jobs/job_server.h"
#include "tests/server/load_fixture.h"
#include "tests/server/server_process.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(int, jobs, 40, "at once, of two clients");
ABSL_FLAG(int, streams, 200, "at once");
ABSL_FLAG(int, connections, 200, "that say nothing");
ABSL_FLAG(std::string, vanish, "",
          "address; be a client that reads the start of streams");
ABSL_FLAG(std::string, path, "", "of that client: a safetensors file");

namespace dcp::server {
namespace {

using LoadTest = LoadFixture;

// A client process that reads the start of streams and then nothing, until it
// is killed.
int Vanish() {
  Progress progress;
  const auto channel = NewChannel(absl::GetFlag(FLAGS_vanish));
  std::vector<std::unique_ptr<StreamCall>> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::make_unique<StreamCall>(
        channel, absl::GetFlag(FLAGS_path), "one", progress));
  }
  progress.WaitFor(progress.num_begun, calls.size());
  std::cout << "event=reads all" << std::endl;
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  _exit(0);
}

// Checks that the two clients' jobs were started alternately once both clients
// had submitted all of theirs.
void ExpectTurns(const std::vector<std::pair<JobMetadata, int>>& jobs) {
  using google::protobuf::util::TimeUtil;
  int64_t all_there = 0;
  std::map<std::pair<int64_t, size_t>, int> starts;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const JobMetadata& job = jobs[i].first;
    all_there = std::max(all_there,
                         TimeUtil::TimestampToNanoseconds(job.create_time()));
    starts[{TimeUtil::TimestampToNanoseconds(job.start_time()), i}] =
        jobs[i].second;
  }
  int left[2] = {0, 0};
  for (const auto& [start, client] : starts) {
    if (start.first > all_there) ++left[client];
  }
  int difference = 0;
  for (const auto& [start, client] : starts) {
    if (start.first <= all_there || left[0] == 0 || left[1] == 0) continue;
    --left[client];
    difference += client == 0 ? 1 : -1;
    // Two jobs run at a time, and may have begun in either order.
    EXPECT_LE(std::abs(difference), 3);
  }
}

TEST_F(LoadTest, JobsAndStreamsStayWithinLimits) {
  const int num_jobs = absl::GetFlag(FLAGS_jobs);
  const auto num_streams = static_cast<size_t>(absl::GetFlag(FLAGS_streams));
  std::vector<std::string> names[2];
  JobClient* const clients[2] = {&one_, &two_};
  // One client submits all jobs before the other.
  for (int client = 0; client < 2; ++client) {
    for (int i = 0; i < num_jobs / 2; ++i) {
      auto request =
          clients[client]->Request(absl::StrCat("out-", client, "-", i));
      const auto operation = clients[client]->Convert(request);
      ASSERT_OK(operation);
      names[client].push_back(operation->name());
    }
  }
  Progress progress;
  const auto calls =
      OpenStreams(num_streams, one_.data("small.safetensors"), progress);
  progress.WaitFor(progress.num_begun, num_streams);
  EXPECT_EQ(Metric("tessera_streams"), static_cast<double>(num_streams));
  EXPECT_LE(Metric("tessera_memory_used_bytes"),
            static_cast<double>(kMaxMemory));
  {
    Progress one_more;
    StreamCall call(NewChannel(address_), one_.data("small.safetensors"), "one",
                    one_more);
    one_more.WaitFor(one_more.num_begun, 1);
    call.GoOn();
    one_more.WaitFor(one_more.num_ended, 1);
    EXPECT_EQ(call.status().error_code(), grpc::RESOURCE_EXHAUSTED);
  }
  for (const auto& call : calls) call->GoOn();
  progress.WaitFor(progress.num_ended, num_streams);
  for (const auto& call : calls) {
    ASSERT_TRUE(call->status().ok()) << call->status().error_message();
    ASSERT_EQ(call->num_bytes(), kSmallBytes);
    ASSERT_TRUE(call->is_right());
  }
  std::vector<std::pair<JobMetadata, int>> jobs;
  for (int client = 0; client < 2; ++client) {
    for (const std::string& name : names[client]) {
      const auto ended = clients[client]->Wait(name);
      ASSERT_OK(ended);
      EXPECT_OK(ErrorOf(*ended));
      jobs.emplace_back(MetadataOf(*ended), client);
    }
  }
  ExpectTurns(jobs);
  EXPECT_OK(CompareCheckpoints(one_.data("source"), one_.data("out-0-0")));
  ExpectNothingIsHeld();
  std::cout << num_jobs << " jobs and " << num_streams << " streams at once; "
            << "at most " << (server_->peak_resident_bytes() >> 20)
            << " MiB resident\n";
}

TEST_F(LoadTest, SlowClientsBlockNobody) {
  // Together they require more than half of the memory.
  constexpr size_t kNumSlow = 24;
  Progress slow;
  const auto calls =
      OpenStreams(kNumSlow, one_.data("large.safetensors"), slow);
  slow.WaitFor(slow.num_begun, kNumSlow);
  const uint64_t before = server_->peak_resident_bytes();
  for (int i = 0; i < 3; ++i) {
    Progress fast;
    const auto fast_calls =
        OpenStreams(2, one_.data("large.safetensors"), fast);
    fast.WaitFor(fast.num_begun, 2);
    for (const auto& call : fast_calls) call->GoOn();
    fast.WaitFor(fast.num_ended, 2);
    for (const auto& call : fast_calls) {
      EXPECT_TRUE(call->status().ok()) << call->status().error_message();
      EXPECT_EQ(call->num_bytes(), kLargeBytes);
      EXPECT_TRUE(call->is_right());
    }
  }
  const auto job = one_.Convert(one_.Request("out"));
  ASSERT_OK(job);
  const auto ended = one_.Wait(job->name());
  ASSERT_OK(ended);
  EXPECT_OK(ErrorOf(*ended));
  EXPECT_EQ(Metric("tessera_streams"), kNumSlow);
  EXPECT_LE(Metric("tessera_memory_used_bytes"),
            static_cast<double>(kMaxMemory));
  std::cout << kNumSlow << " slow clients: " << (before >> 20)
            << " MiB resident; with others at most "
            << (server_->peak_resident_bytes() >> 20) << " MiB\n";
  // The slow clients that keep reading get everything in the end.
  for (size_t i = 0; i < kNumSlow; ++i) {
    if (i % 2 == 0) {
      calls[i]->GoOn();
    } else {
      calls[i]->Leave();
    }
  }
  slow.WaitFor(slow.num_ended, kNumSlow);
  for (size_t i = 0; i < kNumSlow; i += 2) {
    EXPECT_TRUE(calls[i]->status().ok()) << calls[i]->status().error_message();
    EXPECT_EQ(calls[i]->num_bytes(), kLargeBytes);
    EXPECT_TRUE(calls[i]->is_right());
  }
  ExpectNothingIsHeld();
}

TEST_F(LoadTest, KilledClientsLeaveNothing) {
  for (int i = 0; i < 2; ++i) {
    ServerProcess client(
        {"/proc/self/exe", absl::StrCat("--vanish=", address_),
         absl::StrCat("--path=", one_.data("large.safetensors"))});
    ASSERT_TRUE(client.WaitUntilItSays("event=reads")) << client.said();
    EXPECT_EQ(Metric("tessera_streams"), 8);
    EXPECT_GT(Metric("tessera_memory_used_bytes"), kReaderMemory);
    EXPECT_TRUE(client.Kill());
    ExpectNothingIsHeld();
  }
  ExpectServes();
}

void RaiseFileLimit() {
  rlimit limit;
  DCP_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  DCP_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

}  // namespace
}  // namespace dcp::server

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  dcp::server::RaiseFileLimit();
  if (!absl::GetFlag(FLAGS_vanish).empty()) return dcp::server::Vanish();
  return RUN_ALL_TESTS();
}
