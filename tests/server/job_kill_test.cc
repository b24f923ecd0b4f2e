// A server process that is killed with SIGKILL at moments that chance chooses,
// while jobs are submitted, run and are cancelled. After its last start every
// job that was accepted comes to its end, whole, and nothing else is left.
// --rounds says how often.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "dcp/base/check.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/job_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(int, rounds, 10, "rounds of jobs");
ABSL_FLAG(std::string, serve, "", "directory; be the server");
ABSL_FLAG(std::string, listen, "", "where the server listens");

extern char** environ;

namespace dcp::server {
namespace {

using ::dcp::testing::TempDir;

constexpr int64_t kNumFiles = 12;
// Of the jobs of a round; the last is cancelled.
constexpr const char* kOutputs[] = {"dcp", "directory", "model.pt", "dropped"};
constexpr uint64_t kNumBytes = uint64_t{24} << 20;

// Until standard input ends, or a signal.
int Serve() {
  SetLogSink([](LogSeverity, absl::string_view) {});
  JobServer::Settings settings;
  settings.listen = absl::GetFlag(FLAGS_listen);
  const JobServer server(absl::GetFlag(FLAGS_serve), settings);
  DCP_CHECK(write(STDOUT_FILENO, "x", 1) == 1);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

// A server in a process of its own.
class ServerProcess {
 public:
  ServerProcess(const std::string& directory, const std::string& listen) {
    int in[2];
    int out[2];
    DCP_CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::string serve = absl::StrCat("--serve=", directory);
    std::string address = absl::StrCat("--listen=", listen);
    std::string program = "/proc/self/exe";
    char* arguments[] = {program.data(), serve.data(), address.data(), nullptr};
    DCP_CHECK(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments,
                          environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    stdin_ = in[1];
    stdout_ = out[0];
  }
  ~ServerProcess() {
    if (pid_ != 0) Kill();
    close(stdin_);
    close(stdout_);
  }

  // Whether it listens by then.
  bool WaitUntilReady() {
    char byte;
    return read(stdout_, &byte, 1) == 1;
  }
  // As long as that, unless it ends.
  void LetRun(int64_t microseconds) {
    pollfd end = {.fd = stdout_, .events = POLLRDHUP, .revents = 0};
    const timespec time = {.tv_sec = microseconds / 1'000'000,
                           .tv_nsec = microseconds % 1'000'000 * 1000};
    ppoll(&end, 1, &time, nullptr);
  }
  void Kill() {
    kill(pid_, SIGKILL);
    int status;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself: " << status;
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int stdin_ = -1;
  int stdout_ = -1;
};

class JobKillTest : public ::testing::Test {
 protected:
  JobKillTest() : client_(dir_.path()) {
    std::filesystem::create_directories(client_.data(""));
    MakeCheckpoint(client_.data("source"), kNumFiles, kNumBytes);
    before_ = ListFiles(client_.data(""));
  }

  void StartServer() {
    const std::string listen =
        absl::StrCat("unix:", dir_.Join(absl::StrCat("s", num_starts_++)));
    server_ = std::make_unique<ServerProcess>(dir_.path(), listen);
    listen_ = listen;
  }

  // Of round `round`: into the three kinds of destinations.
  std::vector<tessera::v1::ConvertRequest> Requests(int round) {
    std::vector<tessera::v1::ConvertRequest> requests(4);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i] = client_.Request(kOutputs[i]);
      requests[i].mutable_options()->set_request_id(
          absl::StrCat("round-", round, "-", i));
    }
    requests[1].set_format(tessera::v1::FORMAT_SAFETENSORS);
    requests[1].set_max_shard_bytes(1);
    return requests;
  }

  // All that are not submitted yet, as far as the server lives; the last is
  // cancelled.
  bool Submit(const std::vector<tessera::v1::ConvertRequest>& requests,
              std::vector<std::string>& names) {
    for (size_t i = names.size(); i < requests.size(); ++i) {
      const auto operation = client_.Convert(requests[i]);
      if (!operation.ok()) return false;
      names.push_back(operation->name());
    }
    return client_.Cancel(names.back()).ok();
  }

  void ExpectRightAndWhole(const std::vector<std::string>& names) {
    for (size_t i = 0; i < names.size(); ++i) {
      const auto ended = client_.Wait(names[i]);
      ASSERT_OK(ended);
      ASSERT_TRUE(ended->done());
      num_restarts_ += MetadataOf(*ended).num_restarts();
      const std::string path = client_.data(kOutputs[i]);
      if (i + 1 == names.size() &&
          MetadataOf(*ended).state() == JobMetadata::CANCELLED) {
        ++num_cancelled_;
        EXPECT_FALSE(std::filesystem::exists(path));
      } else {
        EXPECT_OK(ErrorOf(*ended)) << kOutputs[i];
        EXPECT_OK(CompareCheckpoints(client_.data("source"), path));
      }
      std::filesystem::remove_all(path);
      EXPECT_OK(client_.Delete(names[i]));
    }
    EXPECT_EQ(ListFiles(client_.data("")), before_);
  }

  // Kills the server `num_kills` times on the way; returns how long the last
  // one took.
  int64_t Run(int round, int num_kills, int64_t most_microseconds) {
    const std::vector<tessera::v1::ConvertRequest> requests = Requests(round);
    std::vector<std::string> names;
    for (int i = 0; i < num_kills; ++i) {
      StartServer();
      const auto after = static_cast<int64_t>(
          random_() % static_cast<uint64_t>(most_microseconds));
      // Some are killed before they listen, some while they answer.
      std::thread killer([&] {
        server_->LetRun(after);
        server_->Kill();
      });
      if (server_->WaitUntilReady()) {
        client_.Connect(listen_);
        Submit(requests, names);
      }
      killer.join();
    }
    StartServer();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(server_->WaitUntilReady());
    client_.Connect(listen_);
    EXPECT_TRUE(Submit(requests, names));
    ExpectRightAndWhole(names);
    const auto end = std::chrono::steady_clock::now();
    server_->Kill();
    return std::chrono::duration_cast<std::chrono::microseconds>(end - begin)
        .count();
  }

  const TempDir dir_;
  JobClient client_;
  std::string before_;
  std::unique_ptr<ServerProcess> server_;
  std::string listen_;
  int num_starts_ = 0;
  uint64_t num_restarts_ = 0;
  int num_cancelled_ = 0;
  std::mt19937_64 random_{static_cast<uint64_t>(GTEST_FLAG_GET(random_seed))};
};

TEST_F(JobKillTest, EveryJobEndsRightAndWhole) {
  SetLogSink([](LogSeverity, absl::string_view) {});
  SCOPED_TRACE(
      absl::StrCat("--gtest_random_seed=", GTEST_FLAG_GET(random_seed)));
  const int64_t microseconds = Run(0, 0, 0);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  int num_kills = 0;
  for (int round = 1; round <= rounds; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const int kills = 1 + static_cast<int>(random_() % 3);
    Run(round, kills, microseconds);
    num_kills += kills;
    if (HasFailure()) return;
  }
  std::cout << num_kills << " kills in " << rounds << " rounds of 4 jobs; "
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
