// SPDX-License-Identifier: Apache-2.0
// Kills a server process with SIGKILL at random moments, while jobs of each
// kind are submitted, run and are cancelled. After the last start every
// accepted job completes with a complete result, and nothing else is left. The
// process is also chosen at random: dcp-server, or this program, whose jobs
// record each file and therefore resume in the middle. --rounds sets the number
// of rounds.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/v1/checkpoint_service.pb.h"
#include "tests/server/jobs/job_server.h"
#include "tests/server/server_process.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(int, rounds, 4, "rounds of jobs");
ABSL_FLAG(std::string, serve, "", "directory; be the server");
ABSL_FLAG(std::string, listen, "", "where the server listens");

namespace dcp::server {
namespace {

using ::dcp::testing::TempDir;

constexpr int64_t kNumFiles = 12;
constexpr uint64_t kNumBytes = uint64_t{24} << 20;
// A server prints this when it listens.
constexpr absl::string_view kStarted = "event=start ";

// Runs until standard input ends, or until a signal.
int Serve() {
  SetLogSink([](LogSeverity, absl::string_view) {});
  JobServer::Settings settings;
  settings.listen = absl::GetFlag(FLAGS_listen);
  const JobServer server(absl::GetFlag(FLAGS_serve), settings);
  std::cout << kStarted << std::endl;
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

// A UUID that is determined by `text`.
std::string RequestId(const std::string& text) {
  return absl::StrFormat("f47ac10b-58cc-4372-a567-%012x",
                         std::hash<std::string>()(text) & 0xffff'ffff'ffff);
}

// A job that is submitted until it is accepted.
struct Submission {
  JobKind kind;
  std::string output;  // the name below data(); empty for VERIFY
  bool cancel;
  std::function<grpc::Status(grpc::ClientContext&, Operation&)> submit;
};

class JobKillTest : public ::testing::Test {
 protected:
  JobKillTest() : client_(dir_.path()) {
    MakeCheckpoint(client_.data("source"), kNumFiles, kNumBytes);
    before_ = ListFiles(client_.data(""));
    // Bazel's folders have longer names than a socket may have.
    DCP_CHECK(mkdtemp(sockets_.data()) != nullptr);
  }
  ~JobKillTest() override { std::filesystem::remove_all(sockets_); }

  void StartServer() {
    listen_ = absl::StrCat("unix:", sockets_, "/", num_starts_++);
    std::vector<std::string> arguments = {
        "/proc/self/exe", absl::StrCat("--serve=", dir_.path())};
    if (random_() % 2 == 0) {
      arguments = {"tests/testing/programs/dcp-server",
                   absl::StrCat("--root=", client_.data("")),
                   absl::StrCat("--state-dir=", dir_.Join("state"))};
      ++num_daemons_;
    }
    arguments.push_back(absl::StrCat("--listen=", listen_));
    server_ = std::make_unique<ServerProcess>(std::move(arguments));
  }

  // A job of this kind in round `round`, with the fields that all have in
  // common.
  template <typename Request>
  Request Make(int round, const std::string& output) const {
    Request request;
    request.mutable_source()->set_path(client_.data("source"));
    if constexpr (requires { request.mutable_destination(); }) {
      request.mutable_destination()->set_path(client_.data(output));
    }
    request.mutable_options()->set_memory_bytes(kMinMemoryBytes);
    request.mutable_options()->set_request_id(
        RequestId(absl::StrCat("round-", round, "-", output)));
    return request;
  }

  std::vector<Submission> Submissions(int round) {
    std::vector<Submission> all;
    const auto convert = [&](const std::string& output, bool cancel,
                             tessera::v1::Format format) {
      auto request = Make<tessera::v1::ConvertRequest>(round, output);
      request.set_format(format);
      if (format == tessera::v1::FORMAT_SAFETENSORS) {
        request.set_max_shard_bytes(1);
      }
      all.push_back(
          {JobMetadata::CONVERT, output, cancel,
           [this, request](grpc::ClientContext& context, Operation& operation) {
             return client_.jobs().Convert(&context, request, &operation);
           }});
    };
    convert("dcp", false, tessera::v1::FORMAT_UNSPECIFIED);
    convert("directory", false, tessera::v1::FORMAT_SAFETENSORS);
    auto reshard = Make<tessera::v1::ReshardRequest>(round, "columns");
    auto* const axis = reshard.mutable_mesh()->add_axes();
    axis->set_name("tp");
    axis->set_size(3);
    auto* const rule = reshard.add_placements();
    rule->set_glob("weight.*");
    rule->add_placements()->mutable_shard()->set_dim(1);
    all.push_back(
        {JobMetadata::RESHARD, "columns", false,
         [this, reshard](grpc::ClientContext& context, Operation& operation) {
           return client_.jobs().Reshard(&context, reshard, &operation);
         }});
    const auto consolidate =
        Make<tessera::v1::ConsolidateRequest>(round, "model.pt");
    all.push_back({JobMetadata::CONSOLIDATE, "model.pt", false,
                   [this, consolidate](grpc::ClientContext& context,
                                       Operation& operation) {
                     return client_.jobs().Consolidate(&context, consolidate,
                                                       &operation);
                   }});
    const auto verify = Make<tessera::v1::VerifyRequest>(round, "");
    all.push_back(
        {JobMetadata::VERIFY, "", false,
         [this, verify](grpc::ClientContext& context, Operation& operation) {
           return client_.jobs().Verify(&context, verify, &operation);
         }});
    convert("dropped", true, tessera::v1::FORMAT_UNSPECIFIED);
    return all;
  }

  // Submits all that have not been submitted; returns false if the server dies.
  bool Submit(const std::vector<Submission>& submissions,
              std::vector<std::string>& names) {
    for (size_t i = names.size(); i < submissions.size(); ++i) {
      grpc::ClientContext context;
      Operation operation;
      if (!submissions[i].submit(context, operation).ok()) return false;
      names.push_back(operation.name());
    }
    for (size_t i = 0; i < submissions.size(); ++i) {
      if (submissions[i].cancel && !client_.Cancel(names[i]).ok()) return false;
    }
    return true;
  }

  void ExpectRightAndWhole(const Submission& job, const std::string& name) {
    SCOPED_TRACE(absl::StrCat(KindName(job.kind), " ", job.output));
    const auto ended = client_.Wait(name);
    ASSERT_OK(ended);
    ASSERT_TRUE(ended->done());
    const JobMetadata metadata = MetadataOf(*ended);
    EXPECT_EQ(metadata.kind(), job.kind);
    num_restarts_ += metadata.num_restarts();
    const std::string path = client_.data(job.output);
    if (job.cancel && metadata.state() == JobMetadata::CANCELLED) {
      ++num_cancelled_;
      EXPECT_FALSE(std::filesystem::exists(path));
    } else if (job.kind == JobMetadata::VERIFY) {
      EXPECT_OK(ErrorOf(*ended));
      tessera::v1::VerifyReport report;
      EXPECT_TRUE(ended->response().UnpackTo(&report));
      EXPECT_EQ(report.num_findings(), 0u);
    } else {
      EXPECT_OK(ErrorOf(*ended));
      EXPECT_OK(CompareCheckpoints(client_.data("source"), path));
    }
    if (!job.output.empty()) std::filesystem::remove_all(path);
    EXPECT_OK(client_.Delete(name));
    ++num_jobs_;
  }

  // Kills the server `num_kills` times; returns how long the last run took.
  int64_t Run(int round, int num_kills, int64_t most_microseconds) {
    const std::vector<Submission> submissions = Submissions(round);
    std::vector<std::string> names;
    for (int i = 0; i < num_kills; ++i) {
      StartServer();
      const auto after = static_cast<int64_t>(
          random_() % static_cast<uint64_t>(most_microseconds));
      // Some are killed before they listen, some while they answer.
      bool was_alive = false;
      std::thread killer([&] {
        server_->LetRun(absl::Microseconds(after));
        was_alive = server_->Kill();
      });
      if (server_->WaitUntilItSays(kStarted)) {
        client_.Connect(listen_);
        Submit(submissions, names);
      }
      killer.join();
      EXPECT_TRUE(was_alive) << "it ended by itself: " << server_->said();
    }
    StartServer();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(server_->WaitUntilItSays(kStarted)) << server_->said();
    client_.Connect(listen_);
    EXPECT_TRUE(Submit(submissions, names));
    if (HasFailure()) return 0;
    for (size_t i = 0; i < names.size(); ++i) {
      ExpectRightAndWhole(submissions[i], names[i]);
    }
    EXPECT_EQ(ListFiles(client_.data("")), before_);
    const auto end = std::chrono::steady_clock::now();
    EXPECT_TRUE(server_->Kill()) << server_->said();
    return std::chrono::duration_cast<std::chrono::microseconds>(end - begin)
        .count();
  }

  const TempDir dir_;
  JobClient client_;
  std::string before_;
  std::unique_ptr<ServerProcess> server_;
  std::string sockets_ = "/tmp/job_kill_test_XXXXXX";
  std::string listen_;
  int num_starts_ = 0;
  int num_daemons_ = 0;  // the runs of dcp-server among them
  int num_jobs_ = 0;
  uint64_t num_restarts_ = 0;
  int num_cancelled_ = 0;
  std::mt19937_64 random_{static_cast<uint64_t>(GTEST_FLAG_GET(random_seed))};
};

TEST_F(JobKillTest, EveryJobEndsRightAndWhole) {
  SetLogSink([](LogSeverity, absl::string_view) {});
  SCOPED_TRACE(
      absl::StrCat("--gtest_random_seed=", GTEST_FLAG_GET(random_seed)));
  int64_t microseconds = Run(0, 0, 0);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  int num_kills = 0;
  for (int round = 1; round <= rounds; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const int kills = 1 + static_cast<int>(random_() % 3);
    // The shortest of all rounds counts, because one may have had to share the
    // machine.
    microseconds = std::min(microseconds, Run(round, kills, microseconds));
    if (HasFailure()) return;
    num_kills += kills;
  }
  std::cout << num_kills << " kills in " << rounds << " rounds, "
            << num_daemons_ << " of " << num_starts_
            << " servers were dcp-server; " << num_jobs_ << " jobs; "
            << num_restarts_ << " times a job was found unfinished, "
            << num_cancelled_ << " were cancelled in time\n";
}

}  // namespace
}  // namespace dcp::server

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  if (!absl::GetFlag(FLAGS_serve).empty()) return dcp::server::Serve();
  return RUN_ALL_TESTS();
}
