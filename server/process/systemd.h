// SPDX-License-Identifier: Apache-2.0
// Systemd: reports the state of the process to the service manager that started
// it, if that requests it (Type=notify). Any thread.
#ifndef SERVER_PROCESS_SYSTEMD_H_
#define SERVER_PROCESS_SYSTEMD_H_

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace dcp::server {

// `state` is e.g. "READY=1" or "STOPPING=1". Does nothing if NOTIFY_SOCKET is
// not in the environment.
void NotifySystemd(absl::string_view state);

// The time in which systemd expects "WATCHDOG=1", from WATCHDOG_USEC and
// WATCHDOG_PID in the environment (WatchdogSec= of the unit). Infinite if it
// does not expect that of this process.
absl::Duration WatchdogTimeout();

}  // namespace dcp::server

#endif  // SERVER_PROCESS_SYSTEMD_H_
