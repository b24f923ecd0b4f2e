// Systemd: tells the service manager what the process does, where it was
// started by one that asks for it (Type=notify). Any thread.
#ifndef SERVER_SYSTEMD_H_
#define SERVER_SYSTEMD_H_

#include "absl/strings/string_view.h"

namespace dcp::server {

// `state` is such as "READY=1" or "STOPPING=1". Nothing happens where nobody
// asks: without NOTIFY_SOCKET in the environment.
void NotifySystemd(absl::string_view state);

}  // namespace dcp::server

#endif  // SERVER_SYSTEMD_H_
