// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "c10/util/Exception.h"
#include "gtest/gtest.h"
#include "tests/testing/held_port.h"
#include "tests/testing/temp_dir.h"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace fsdp::testing {
namespace {

using Clock = std::chrono::steady_clock;

// How long the other ranks may still report after one has failed.
constexpr std::chrono::seconds kGrace(3);
constexpr size_t kOutputBytes = 6000;

std::string ReadIfThere(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Rank {
  pid_t pid = -1;
  int socket = -1;  // -1 once closed
  char said = 0;    // the last W or D, until it is answered
  bool done = false;
  int wait_status = 0;
  std::vector<std::string> failures;
};

// The current test's directory; the next test's first call removes it.
std::string TestDirectory(int call) {
  static std::unique_ptr<dcp::testing::TempDir> directory;
  if (call == 0) directory = std::make_unique<dcp::testing::TempDir>();
  return directory->path();
}

std::map<std::string, std::string> InheritedEnvironment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    // The test runner sets these for the parent only.
    const bool is_for_parent = absl::StartsWith(pair.first, "GTEST_") ||
                               absl::StartsWith(pair.first, "TEST_SHARD") ||
                               pair.first == "TEST_TOTAL_SHARDS" ||
                               pair.first == "XML_OUTPUT_FILE" ||
                               pair.first == "TEST_PREMATURE_EXIT_FILE" ||
                               pair.first == "TESTBRIDGE_TEST_ONLY" ||
                               pair.first == "GLOO_SOCKET_IFNAME";
    if (!is_for_parent) variables.insert(pair);
  }
  return variables;
}

std::vector<std::string> RankArguments() {
  std::vector<std::string> arguments = absl::StrSplit(
      ReadIfThere("/proc/self/cmdline"), '\0', absl::SkipEmpty());
  arguments.erase(std::remove_if(arguments.begin(), arguments.end(),
                                 [](const std::string& argument) {
                                   return absl::StartsWith(argument, "--gtest");
                                 }),
                  arguments.end());
  const ::testing::TestInfo& test =
      *::testing::UnitTest::GetInstance()->current_test_info();
  arguments.push_back(absl::StrCat("--gtest_filter=", test.test_suite_name(),
                                   ".", test.name()));
  arguments.push_back("--gtest_brief=1");
  return arguments;
}

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& string : *strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

class RankProcesses {
 public:
  RankProcesses(int world_size, const RanksOptions& options, int call)
      : options_(options),
        call_(call),
        directory_(TestDirectory(call)),
        ranks_(static_cast<size_t>(world_size)) {
    const std::string shared = absl::StrCat(directory_, "/", call);
    TORCH_CHECK(mkdir(shared.c_str(), 0777) == 0, "cannot make ", shared);
  }

  // Waits until all ranks are gone.
  RanksResult Run() {
    const Clock::time_point end = Clock::now() + options_.deadline;
    if (options_.agent_store) {
      c10d::TCPStoreOptions store;
      store.port = 0;
      store.isServer = true;
      store.waitWorkers = false;
      store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", store);
    }
    port_ = store_ ? store_->getPort() : held_port_.number();
    for (int rank = 0; rank < world_size(); ++rank) Start(rank);
    Converse(end);
    KillAll();
    RanksResult result{.problems = Problems(),
                       .outputs = {},
                       .reports = ReadReports(directory_, call_, world_size())};
    if (!result.problems.empty()) result.outputs = Outputs();
    return result;
  }

 private:
  int world_size() const { return static_cast<int>(ranks_.size()); }

  std::string Outputs() const {
    std::string outputs;
    for (int rank = 0; rank < world_size(); ++rank) {
      std::string output =
          ReadIfThere(RankFile(directory_, "output", call_, rank));
      if (output.size() > kOutputBytes) {
        output =
            absl::StrCat("...", output.substr(output.size() - kOutputBytes));
      }
      absl::StrAppend(&outputs, "\n---- output of rank ", rank, "\n", output);
    }
    return outputs;
  }

  bool MayDie(int rank) const {
    return std::count(options_.may_die.begin(), options_.may_die.end(), rank) >
           0;
  }

  std::vector<std::string> RankEnvironment(int rank, int socket) const {
    std::map<std::string, std::string> variables = InheritedEnvironment();
    variables["RANK"] = variables["LOCAL_RANK"] = absl::StrCat(rank);
    variables["WORLD_SIZE"] = absl::StrCat(world_size());
    variables["LOCAL_WORLD_SIZE"] = absl::StrCat(world_size());
    variables["MASTER_ADDR"] = "127.0.0.1";
    variables["MASTER_PORT"] = absl::StrCat(port_);
    variables["TORCHELASTIC_USE_AGENT_STORE"] = store_ ? "True" : "False";
    variables["OMP_NUM_THREADS"] = "1";
    variables["MKL_NUM_THREADS"] = "1";
    for (const auto& [name, value] : options_.environment) {
      variables[name] = value;
      if (value.empty()) variables.erase(name);
    }
    variables[kSocketVariable] = absl::StrCat(socket);
    variables[kCallVariable] = absl::StrCat(call_);
    variables[kDirectoryVariable] = directory_;
    std::vector<std::string> environment;
    for (const auto& [name, value] : variables) {
      environment.push_back(absl::StrCat(name, "=", value));
    }
    return environment;
  }

  void Start(int rank) {
    int sockets[2];
    TORCH_CHECK(
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0,
        "no socket for rank ", rank);
    const std::string output = RankFile(directory_, "output", call_, rank);
    const int output_fd =
        open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    std::vector<std::string> environment = RankEnvironment(rank, sockets[1]);
    std::vector<std::string> arguments = RankArguments();
    const std::vector<char*> envp = Pointers(&environment);
    const std::vector<char*> argv = Pointers(&arguments);
    const pid_t pid = fork();
    TORCH_CHECK(pid >= 0, "rank ", rank, " could not be started");
    if (pid == 0) {
      // Does only what is safe between fork and exec in a process with threads.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      fcntl(sockets[1], F_SETFD, 0);
      dup2(output_fd, 1);
      dup2(output_fd, 2);
      execve("/proc/self/exe", argv.data(), envp.data());
      _exit(127);
    }
    close(sockets[1]);
    close(output_fd);
    Rank& state = ranks_[static_cast<size_t>(rank)];
    state.pid = pid;
    state.socket = sockets[0];
  }

  // Waits until every rank is gone or the time is up.
  void Converse(Clock::time_point end) {
    for (;;) {
      std::vector<pollfd> sockets;
      for (const Rank& rank : ranks_) {
        sockets.push_back({.fd = rank.socket, .events = POLLIN, .revents = 0});
      }
      if (std::none_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& r) { return r.socket >= 0; })) {
        return;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - Clock::now());
      if (left.count() <= 0) {
        hung_ = !failed_;
        return;
      }
      poll(sockets.data(), sockets.size(), static_cast<int>(left.count()) + 1);
      const bool failed_before = failed_;
      for (int rank = 0; rank < world_size(); ++rank) {
        if (sockets[static_cast<size_t>(rank)].revents != 0) Hear(rank);
      }
      if (failed_ && !failed_before) {
        end = std::min(end, Clock::now() + kGrace);
      }
      AnswerAll();
    }
  }

  void Hear(int number) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    std::string message(kRankMessageBytes, '\0');
    const ssize_t size = recv(rank.socket, message.data(), message.size(), 0);
    if (size <= 0) {
      close(std::exchange(rank.socket, -1));
      failed_ = failed_ || (!rank.done && !MayDie(number));
      return;
    }
    message.resize(static_cast<size_t>(size));
    if (message[0] == 'F') {
      rank.failures.push_back(message.substr(1));
    } else {
      rank.said = message[0];
    }
  }

  // Lets all ranks continue when all living ones wait for the same answer.
  void AnswerAll() {
    for (const Rank& rank : ranks_) {
      if (rank.socket >= 0 && rank.said == 0) return;
    }
    for (Rank& rank : ranks_) {
      if (rank.socket < 0) continue;
      rank.done = std::exchange(rank.said, 0) == 'D';
      (void)send(rank.socket, "G", 1, MSG_NOSIGNAL);
    }
  }

  void KillAll() {
    for (Rank& rank : ranks_) {
      if (rank.socket >= 0) {
        kill(rank.pid, SIGKILL);
        close(rank.socket);
      }
      waitpid(rank.pid, &rank.wait_status, 0);
    }
  }

  std::vector<std::string> Problems() const {
    std::vector<std::string> problems;
    for (int number = 0; number < world_size(); ++number) {
      const Rank& rank = ranks_[static_cast<size_t>(number)];
      for (const std::string& failure : rank.failures) {
        problems.push_back(absl::StrCat("rank ", number, ": ", failure));
      }
      const std::string end = DescribeEnd(number);
      if (!end.empty()) {
        problems.push_back(absl::StrCat("rank ", number, ": ", end));
      }
    }
    return problems;
  }

  // How a rank ended, if it failed and has not said why.
  std::string DescribeEnd(int number) const {
    const Rank& rank = ranks_[static_cast<size_t>(number)];
    if (rank.done || MayDie(number)) return "";
    if (rank.socket >= 0) {
      if (rank.said == 'D') return "";  // It waited for the others.
      return hung_ ? "was still running at the deadline"
                   : "was killed because another rank had ended";
    }
    if (WIFSIGNALED(rank.wait_status)) {
      return absl::StrCat("died of signal ", WTERMSIG(rank.wait_status), ", ",
                          strsignal(WTERMSIG(rank.wait_status)));
    }
    if (!rank.failures.empty()) return "";
    return absl::StrCat("ended with code ", WEXITSTATUS(rank.wait_status),
                        " before its body did");
  }

  const RanksOptions& options_;
  const int call_;
  const std::string directory_;
  std::vector<Rank> ranks_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  const dcp::testing::HeldPort held_port_;  // for the store of rank 0
  int port_ = 0;
  bool failed_ = false;  // a rank ended that should not have
  bool hung_ = false;    // the deadline passed before that
};

}  // namespace

std::string RankFile(const std::string& directory, const char* kind, int call,
                     int rank) {
  return absl::StrCat(directory, "/", kind, ".", call, ".", rank);
}

std::vector<std::string> ReadReports(const std::string& directory, int call,
                                     int world_size) {
  std::vector<std::string> reports;
  for (int rank = 0; rank < world_size; ++rank) {
    reports.push_back(ReadIfThere(RankFile(directory, "report", call, rank)));
  }
  return reports;
}

RanksResult RunRankProcesses(int world_size, const RanksOptions& options,
                             int call) {
  return RankProcesses(world_size, options, call).Run();
}

}  // namespace fsdp::testing
