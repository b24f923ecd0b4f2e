// SPDX-License-Identifier: Apache-2.0
// Watchdog: tells systemd now and then that the process works, as a unit with
// WatchdogSec= requires: without that, systemd ends the process and starts it
// again. It tells nothing while the process is stuck. Thread-safe.
#ifndef SERVER_PROCESS_WATCHDOG_H_
#define SERVER_PROCESS_WATCHDOG_H_

#include <functional>

#include "absl/time/time.h"
#include "server/process/task_queue.h"

namespace dcp::server {

class Watchdog {
 public:
  // `check` returns if the process works; if not, it does not return. It is
  // called on a thread of this object.
  explicit Watchdog(std::function<void()> check);
  // Waits for a check in progress.
  ~Watchdog() = default;
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // How often Ping is to be called: half of the time after which systemd ends
  // the process. Infinite if systemd does not watch it.
  absl::Duration period() const { return period_; }

  // Begins a check, after which systemd is told. Does nothing if one waits for
  // another to return. Does not block.
  void Ping();

 private:
  const std::function<void()> check_;
  const absl::Duration period_;
  TaskQueue checks_;  // last: the tasks use the rest
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_WATCHDOG_H_
