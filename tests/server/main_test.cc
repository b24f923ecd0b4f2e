// SPDX-License-Identifier: Apache-2.0
// Tests the process: exit codes, log lines, and signals.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/process/notify_socket.h"
#include "tests/server/transport/raw_connection.h"
#include "tests/testing/denied_calls.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::DenyNewThreads;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// dcp-server with its output and errors in one pipe.
class Process {
 public:
  // `in_child` is called where the program will run.
  explicit Process(std::vector<std::string> arguments,
                   void (*in_child)() = nullptr) {
    int pipe_fds[2];
    EXPECT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
    arguments.insert(arguments.begin(), "server/dcp-server");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(pipe_fds[1], STDOUT_FILENO);
      dup2(pipe_fds[1], STDERR_FILENO);
      if (in_child != nullptr) in_child();
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(pipe_fds[1]);
    pipe_ = pipe_fds[0];
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(pipe_);
  }

  // Reads until `text` appears; false if it never does.
  bool ReadUntil(absl::string_view text) {
    char c;
    while (!absl::StrContains(output_, text)) {
      if (read(pipe_, &c, 1) != 1) return false;
      output_.push_back(c);
    }
    return true;
  }

  // Lets the process write little before somebody reads.
  void ShrinkPipe() { EXPECT_GT(fcntl(pipe_, F_SETPIPE_SZ, 4096), 0); }

  void Signal(int signal) { kill(pid_, signal); }

  // Reads all output. Returns the exit code; if negative, the signal that ended
  // the process.
  int Wait() {
    char c;
    while (read(pipe_, &c, 1) == 1) output_.push_back(c);
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  const std::string& output() const { return output_; }

 private:
  pid_t pid_;
  int pipe_;
  std::string output_;
};

class MainTest : public ::testing::Test {
 protected:
  MainTest() { dir_.WriteFile("data/x", ""); }

  std::vector<std::string> Arguments(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {
        absl::StrCat("--root=", dir_.Join("data")),
        absl::StrCat("--state-dir=", dir_.Join("state")),
        "--listen=127.0.0.1:0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  TempDir dir_;
};

TEST_F(MainTest, ServesUntilASignal) {
  for (int signal : {SIGTERM, SIGINT}) {
    Process process(Arguments());
    ASSERT_TRUE(process.ReadUntil("event=start address=127.0.0.1:"));
    ASSERT_TRUE(process.ReadUntil(" tokens=no\n")) << process.output();
    process.Signal(signal);
    EXPECT_EQ(process.Wait(), 0);
    EXPECT_THAT(process.output(), AllOf(HasSubstr("event=signal"),
                                        HasSubstr("event=drain calls=0"),
                                        HasSubstr("event=stop clean=yes")));
  }
}

TEST_F(MainTest, ReportsAllWrongOptions) {
  Process process(Arguments({"--drain=x", "--lsiten=y"}));
  EXPECT_EQ(process.Wait(), 2);
  EXPECT_THAT(process.output(),
              AllOf(HasSubstr("dcp-server: --drain: 'x' is not a time"),
                    HasSubstr("\ndcp-server: --lsiten: there is no such")));
}

TEST_F(MainTest, CheckConfigServesNothing) {
  Process right(Arguments({"--check-config"}));
  EXPECT_EQ(right.Wait(), 0);
  EXPECT_EQ(right.output(), "dcp-server: no problem found\n");
  Process wrong(Arguments({"--check-config", "--tokens-file=/none"}));
  EXPECT_EQ(wrong.Wait(), 2);
  EXPECT_THAT(wrong.output(), HasSubstr("tokens file: /none: No such file"));
}

TEST_F(MainTest, CheckConfigReportsAllProblemsWithFiles) {
  const std::string tokens = dir_.WriteFile("tokens", "alice x\nbob y\n");
  Process process({"--check-config", "--root=/none/a", "--root=/none/b",
                   "--state-dir=/none/state", "--tls-cert=/none/c",
                   "--tls-key=/none/k", "--tokens-file=" + tokens});
  EXPECT_EQ(process.Wait(), 2);
  EXPECT_THAT(process.output(),
              AllOf(HasSubstr("dcp-server: root /none/a: No such file"),
                    HasSubstr("dcp-server: root /none/b: No such file"),
                    HasSubstr(":1: the hash of alice"),
                    HasSubstr(":2: the hash of bob"),
                    HasSubstr("/none/c: No such file"),
                    HasSubstr("/none/k: No such file"),
                    HasSubstr("dcp-server: state-dir /none/")));
}

TEST_F(MainTest, CheckConfigWorksNextToARunningServer) {
  Process first(Arguments());
  ASSERT_TRUE(first.ReadUntil("event=start"));
  Process check(Arguments({"--check-config"}));
  EXPECT_EQ(check.Wait(), 0) << check.output();
  std::filesystem::remove_all(dir_.Join("other"));
  Process other({absl::StrCat("--root=", dir_.Join("data")),
                 absl::StrCat("--state-dir=", dir_.Join("other")),
                 "--check-config"});
  EXPECT_EQ(other.Wait(), 0) << other.output();
  EXPECT_FALSE(std::filesystem::exists(dir_.Join("other")));
}

TEST_F(MainTest, HangupReloadsTokens) {
  const std::string hash(64, '0');
  const std::string file = dir_.WriteFile("tokens", "alice " + hash + "\n");
  Process process(Arguments({absl::StrCat("--tokens-file=", file)}));
  ASSERT_TRUE(process.ReadUntil(" tokens=yes\n"));
  process.Signal(SIGHUP);
  ASSERT_TRUE(process.ReadUntil("event=reload of=certificates\n"));
  EXPECT_THAT(process.output(), HasSubstr("event=reload of=tokens\n"));
  dir_.WriteFile("tokens", "alice\n");
  process.Signal(SIGHUP);
  ASSERT_TRUE(process.ReadUntil("event=reload_failed of=tokens error="));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0) << process.output();
}

TEST_F(MainTest, NotifiesSystemd) {
  const NotifySocket systemd;
  setenv("NOTIFY_SOCKET", systemd.name().c_str(), 1);
  setenv("WATCHDOG_USEC", "200000", 1);
  Process process(Arguments());
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  ASSERT_TRUE(process.ReadUntil("event=start"));
  // The first ping may come before.
  std::string told;
  while (told != "READY=1") told = systemd.Receive();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(systemd.Receive(), "WATCHDOG=1");
  // While it serves, and also while it drains.
  process.Signal(SIGTERM);
  while (told != "STOPPING=1") told = systemd.Receive();
  EXPECT_EQ(process.Wait(), 0) << process.output();
}

TEST_F(MainTest, LogsInJson) {
  Process process(Arguments({"--log-format=json"}));
  EXPECT_TRUE(process.ReadUntil("\"event\":\"start\",\"address\":\"127."));
}

// protobuf complains about each of these requests; a client needs no token for
// them.
TEST_F(MainTest, LibrariesLogAtALimitedRateWithoutBlocking) {
  Process process(Arguments({"--log-format=json"}));
  ASSERT_TRUE(process.ReadUntil("\"event\":\"start\",\"address\":\""));
  ASSERT_TRUE(process.ReadUntil("}\n"));
  absl::string_view address = process.output();
  address.remove_prefix(address.find("\"address\":\"") + 11);
  process.ShrinkPipe();
  RawConnection connection(address.substr(0, address.find('"')));
  ASSERT_TRUE(connection.Send(Preface()));
  for (uint32_t stream = 1; stream < 1000; stream += 2) {
    ASSERT_TRUE(connection.Send(
        absl::StrCat(Frame(kHeadersFrame, kEndHeaders, stream,
                           CallHeaders("/grpc.reflection.v1.ServerReflection/"
                                       "ServerReflectionInfo")),
                     Frame(kDataFrame, kEndStream, stream,
                           absl::StrCat(std::string("\0\0\0\0\x04", 5),
                                        "\x0a\x02\xff\xfe")))));
    ASSERT_TRUE(connection.WaitForAnswer(stream)) << stream;
  }
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  const std::vector<std::string> lines =
      absl::StrSplit(process.output(), '\n', absl::SkipEmpty());
  EXPECT_LT(lines.size(), 200u);
  EXPECT_THAT(lines, Contains(HasSubstr("\"event\":\"protobuf\"")));
  EXPECT_THAT(lines, Each(StartsWith("{\"time\":")));
}

TEST_F(MainTest, DoesNotTakeOverALiveUnixSocket) {
  char dir[] = "/tmp/dcp_main_test_XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  const std::string listen = absl::StrCat("--listen=unix:", dir, "/socket");
  const auto start = [&](const char* state) {
    return std::make_unique<Process>(std::vector<std::string>{
        absl::StrCat("--root=", dir_.Join("data")),
        absl::StrCat("--state-dir=", dir_.Join(state)), listen});
  };
  auto first = start("state");
  ASSERT_TRUE(first->ReadUntil("event=start"));
  auto second = start("state-2");
  EXPECT_EQ(second->Wait(), 1);
  EXPECT_THAT(second->output(), HasSubstr("it is in use"));
  first->Signal(SIGKILL);
  first->Wait();
  auto third = start("state");
  EXPECT_TRUE(third->ReadUntil("event=start"));
  third = nullptr;
  std::filesystem::remove_all(dir);
}

TEST_F(MainTest, ReportsThatNoThreadStarts) {
  Process process(Arguments(), &DenyNewThreads);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.output(),
              StartsWith("dcp-server: the system starts no more threads"));
}

TEST_F(MainTest, PrintsTheVersion) {
  Process process({"--version"});
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.output(), HasSubstr("dcp-server 0."));
}

TEST_F(MainTest, SecondServerWithTheSameStateEnds) {
  Process first(Arguments());
  ASSERT_TRUE(first.ReadUntil("event=start"));
  Process second(Arguments());
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.output(), HasSubstr("another server uses it"));
}

TEST_F(MainTest, NextServerTakesTheStateOfAKilledOne) {
  {
    Process first(Arguments());
    ASSERT_TRUE(first.ReadUntil("event=start"));
    first.Signal(SIGKILL);
    EXPECT_EQ(first.Wait(), -SIGKILL);
  }
  Process second(Arguments());
  EXPECT_TRUE(second.ReadUntil("event=start"));
}

TEST_F(MainTest, FailsIfMetricsCannotListen) {
  Process process(Arguments({"--metrics-listen=203.0.113.1:1"}));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.output(), HasSubstr("metrics at 203.0.113.1:1"));
}

TEST_F(MainTest, PrintsHelp) {
  Process process({"--help"});
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.output(), HasSubstr("Usage: dcp-server"));
}

}  // namespace
}  // namespace dcp::server
