// SPDX-License-Identifier: Apache-2.0
// Sockets are made in pairs before the ranks are started: rank 0 has one end of
// pair r and rank r has the other, and everyone else closes both, so that a
// process's end closes its connections. All ranks hold the writing end of one
// pipe, which ends when all of them have ended.
#include "tests/testing/process_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"

namespace dcp::testing {
namespace {

absl::Status Lost() { return absl::UnavailableError("a rank is gone"); }

absl::Status SendAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return Lost();
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

absl::Status ReceiveAll(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t received = recv(fd, data, size, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return Lost();
    data += received;
    size -= static_cast<size_t>(received);
  }
  return absl::OkStatus();
}

// A message is sent as a length, in this machine's byte order, and the bytes.
absl::Status Send(int fd, const std::string& message) {
  const uint64_t size = message.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes += message;
  return SendAll(fd, bytes.data(), bytes.size());
}

absl::StatusOr<std::string> Receive(int fd) {
  uint64_t size = 0;
  DCP_RETURN_IF_ERROR(
      ReceiveAll(fd, reinterpret_cast<char*>(&size), sizeof(size)));
  std::string message(size, '\0');
  DCP_RETURN_IF_ERROR(ReceiveAll(fd, message.data(), size));
  return message;
}

class SocketCoordinator final : public Coordinator {
 public:
  // Rank 0 has the sockets to ranks 1, 2, ...; the others have only the one to
  // rank 0.
  SocketCoordinator(int64_t rank, int64_t num_ranks, std::vector<int> sockets)
      : rank_(rank), num_ranks_(num_ranks), sockets_(std::move(sockets)) {}

  int64_t rank() const override { return rank_; }
  int64_t num_ranks() const override { return num_ranks_; }

  absl::StatusOr<std::vector<std::string>> Gather(std::string value) override {
    if (rank_ != 0) {
      DCP_RETURN_IF_ERROR(Send(sockets_[0], value));
      return std::vector<std::string>();
    }
    std::vector<std::string> all = {std::move(value)};
    for (const int fd : sockets_) {
      DCP_ASSIGN_OR_RETURN(all.emplace_back(), Receive(fd));
    }
    return all;
  }

  absl::StatusOr<std::string> Scatter(
      std::vector<std::string> values) override {
    if (rank_ != 0) return Receive(sockets_[0]);
    for (size_t i = 0; i < sockets_.size(); ++i) {
      DCP_RETURN_IF_ERROR(Send(sockets_[i], values[i + 1]));
    }
    return values[0];
  }

 private:
  const int64_t rank_;
  const int64_t num_ranks_;
  const std::vector<int> sockets_;
};

std::string Ending(int status) {
  return WIFEXITED(status) ? absl::StrCat("exit ", WEXITSTATUS(status))
                           : absl::StrCat("signal ", WTERMSIG(status));
}

}  // namespace

ProcessRanks::ProcessRanks(
    int64_t num_ranks,
    const std::function<bool(Coordinator& coordinator, const Report& report)>&
        work)
    : endings_(static_cast<size_t>(num_ranks)) {
  std::vector<std::array<int, 2>> pairs(static_cast<size_t>(num_ranks));
  for (size_t rank = 1; rank < pairs.size(); ++rank) {
    DCP_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0,
                         pairs[rank].data()) == 0);
  }
  int report_fds[2];
  DCP_CHECK(pipe2(report_fds, O_CLOEXEC) == 0);
  for (size_t rank = 0; rank < pairs.size(); ++rank) {
    const pid_t pid = fork();
    DCP_CHECK(pid >= 0);
    if (pid == 0) {
      std::vector<int> sockets;
      for (size_t other = 1; other < pairs.size(); ++other) {
        const bool mine = rank == 0 || rank == other;
        if (mine) sockets.push_back(pairs[other][rank == 0 ? 0 : 1]);
        close(pairs[other][rank == 0 ? 1 : 0]);
        if (!mine) close(pairs[other][1]);
      }
      close(report_fds[0]);
      SocketCoordinator coordinator(static_cast<int64_t>(rank), num_ranks,
                                    std::move(sockets));
      const bool good = work(coordinator, [&](uint8_t report) {
        DCP_CHECK(write(report_fds[1], &report, 1) == 1);
      });
      _exit(good ? 0 : 1);
    }
    pids_.push_back(pid);
  }
  for (size_t rank = 1; rank < pairs.size(); ++rank) {
    close(pairs[rank][0]);
    close(pairs[rank][1]);
  }
  close(report_fds[1]);
  reports_fd_ = report_fds[0];
}

ProcessRanks::~ProcessRanks() {
  for (size_t rank = 0; rank < pids_.size(); ++rank) {
    Kill(static_cast<int64_t>(rank));
  }
  Wait();
  close(reports_fd_);
}

void ProcessRanks::Kill(int64_t rank) {
  const pid_t pid = pids_[static_cast<size_t>(rank)];
  if (pid != 0) kill(pid, SIGKILL);
}

void ProcessRanks::Wait() {
  while (!WaitFor(int64_t{1} << 40)) {
  }
}

bool ProcessRanks::WaitFor(int64_t microseconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::microseconds(microseconds);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          deadline - Clock::now())
                          .count();
    if (left < 0) return false;
    const timespec timeout{.tv_sec = left / 1'000'000'000,
                           .tv_nsec = left % 1'000'000'000};
    pollfd poll{.fd = reports_fd_, .events = POLLIN, .revents = 0};
    const int ready = ppoll(&poll, 1, &timeout, nullptr);
    if (ready < 0) DCP_CHECK(errno == EINTR);
    if (ready <= 0) continue;
    uint8_t report = 0;
    const ssize_t got = read(reports_fd_, &report, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    reports_.push_back(report);
  }
  Reap();
  return true;
}

void ProcessRanks::Reap() {
  for (size_t rank = 0; rank < pids_.size(); ++rank) {
    if (pids_[rank] == 0) continue;
    int status = 0;
    while (waitpid(pids_[rank], &status, 0) < 0) DCP_CHECK(errno == EINTR);
    endings_[rank] = Ending(status);
    pids_[rank] = 0;
  }
}

}  // namespace dcp::testing
