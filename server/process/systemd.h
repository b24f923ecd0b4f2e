// SPDX-License-Identifier: Apache-2.0
// Systemd: reports the state of the process to the service manager that started
// it, if that requests it (Type=notify). Any thread.
#ifndef SERVER_PROCESS_SYSTEMD_H_
#define SERVER_PROCESS_SYSTEMD_H_

#include "absl/strings/string_view.h"

namespace dcp::server {

// `state` is e.g. "READY=1" or "STOPPING=1". Does nothing if NOTIFY_SOCKET is
// not in the environment.
void NotifySystemd(absl::string_view state);

}  // namespace dcp::server

#endif  // SERVER_PROCESS_SYSTEMD_H_
