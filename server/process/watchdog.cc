// SPDX-License-Identifier: Apache-2.0
#include "server/process/watchdog.h"

#include <utility>

#include "server/process/systemd.h"

namespace dcp::server {

Watchdog::Watchdog(std::function<void()> check)
    : check_(std::move(check)),
      period_(WatchdogTimeout() / 2),
      checks_({.num_threads = 1, .per_client = 1, .max_waiting = 1}) {}

void Watchdog::Ping() {
  // If a check does not return, the next one waits for it in vain.
  checks_
      .Post(kNoClient,
            [this] {
              check_();
              NotifySystemd("WATCHDOG=1");
            })
      .IgnoreError();
}

}  // namespace dcp::server
