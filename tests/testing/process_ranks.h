// SPDX-License-Identifier: Apache-2.0
// ProcessRanks: ranks that are separate processes and can be killed, each with
// a Coordinator over sockets to rank 0. For tests without LibTorch: ranks are
// forked and only run a function. If a rank dies, every later exchange among
// the others fails with Unavailable; no rank waits for it. Requires a process
// with one thread.

#ifndef TESTS_TESTING_PROCESS_RANKS_H_
#define TESTS_TESTING_PROCESS_RANKS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dcp/checkpoint/save/coordinator.h"

namespace dcp::testing {

class ProcessRanks {
 public:
  // Sends a byte to the process that started the rank.
  using Report = std::function<void(uint8_t)>;

  // Starts the ranks: each runs `work` and exits with 0 if it returned true,
  // otherwise with 1.
  ProcessRanks(int64_t num_ranks,
               const std::function<bool(Coordinator& coordinator,
                                        const Report& report)>& work);
  // Kills the ranks that still run, and waits for them.
  ~ProcessRanks();
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  // Takes reports until all ranks have ended (true) or `microseconds` have
  // passed (false).
  bool WaitFor(int64_t microseconds);
  // Waits until all ranks have ended.
  void Wait();

  // Sends SIGKILL.
  void Kill(int64_t rank);

  // In the order in which they arrived.
  const std::vector<uint8_t>& reports() const { return reports_; }
  // "exit 0", "signal 9"; for ranks that have ended and were waited for.
  const std::vector<std::string>& endings() const { return endings_; }

 private:
  void Reap();

  std::vector<pid_t> pids_;  // 0: has ended
  int reports_fd_ = -1;
  std::vector<uint8_t> reports_;
  std::vector<std::string> endings_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_PROCESS_RANKS_H_
