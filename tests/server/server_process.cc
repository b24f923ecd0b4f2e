// SPDX-License-Identifier: Apache-2.0

#include "tests/server/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "dcp/base/check.h"

extern char** environ;

namespace dcp::server {

ServerProcess::ServerProcess(std::vector<std::string> arguments) {
  int to[2];
  int from[2];
  DCP_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDERR_FILENO);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  DCP_CHECK(
      posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) == 0,
      "cannot run ", arguments[0]);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  stdin_ = to[1];
  output_ = from[0];
  reader_ = std::thread([this] { ReadOutput(); });
}

ServerProcess::~ServerProcess() {
  if (pid_ != 0) Kill();
  reader_.join();
  close(stdin_);
  close(output_);
}

void ServerProcess::ReadOutput() {
  char bytes[4096];
  ssize_t length;
  while ((length = read(output_, bytes, sizeof(bytes))) > 0) {
    absl::MutexLock lock(&mutex_);
    said_.append(bytes, static_cast<size_t>(length));
    changed_.SignalAll();
  }
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  changed_.SignalAll();
}

bool ServerProcess::WaitUntilItSays(absl::string_view text) {
  absl::MutexLock lock(&mutex_);
  while (!absl::StrContains(said_, text)) {
    if (ended_) return false;
    changed_.Wait(&mutex_);
  }
  return true;
}

std::string ServerProcess::WordAfter(absl::string_view text) {
  absl::MutexLock lock(&mutex_);
  const size_t begin = said_.find(std::string(text));
  DCP_CHECK(begin != std::string::npos, "it did not say ", text);
  const size_t end = said_.find_first_of(" \n", begin + text.size());
  return said_.substr(begin + text.size(), end - begin - text.size());
}

void ServerProcess::LetRun(absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  absl::MutexLock lock(&mutex_);
  while (!ended_ && !changed_.WaitWithDeadline(&mutex_, end)) {
  }
}

void ServerProcess::Signal(int signal) { kill(pid_, signal); }

bool ServerProcess::Kill() {
  Signal(SIGKILL);
  return Wait() == -SIGKILL;
}

int ServerProcess::Wait() {
  int status = 0;
  waitpid(std::exchange(pid_, 0), &status, 0);
  {
    // The last output may still be in the pipe.
    absl::MutexLock lock(&mutex_);
    while (!ended_) changed_.Wait(&mutex_);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

uint64_t ServerProcess::resident_bytes() const { return StatusBytes("VmRSS:"); }

uint64_t ServerProcess::peak_resident_bytes() const {
  return StatusBytes("VmHWM:");
}

uint64_t ServerProcess::StatusBytes(absl::string_view field) const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/status"));
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, field)) continue;
    absl::ConsumeSuffix(&rest, "kB");
    uint64_t kib = 0;
    DCP_CHECK(absl::SimpleAtoi(rest, &kib), line);
    return kib << 10;
  }
  return 0;
}

uint64_t ServerProcess::num_descriptors() const {
  uint64_t number = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat("/proc/", pid_, "/fd"))) {
    ++number;
  }
  return number;
}

std::string ServerProcess::said() const {
  absl::MutexLock lock(&mutex_);
  return said_;
}

}  // namespace dcp::server
