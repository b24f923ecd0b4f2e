// SPDX-License-Identifier: Apache-2.0

#include "server/process/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"

namespace dcp::server {

// Sends a datagram to a unix socket, possibly one with an abstract name
// ("@name"). See sd_notify(3).
void NotifySystemd(absl::string_view state) {
  const char* const variable = std::getenv("NOTIFY_SOCKET");
  const absl::string_view name = variable == nullptr ? "" : variable;
  sockaddr_un address{};
  if (name.empty() || name.size() >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  // For information only, so an error does not matter.
  [[maybe_unused]] const ssize_t sent = sendto(
      fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
      reinterpret_cast<const sockaddr*>(&address),
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size()));
  close(fd);
}

// See sd_watchdog_enabled(3).
absl::Duration WatchdogTimeout() {
  const auto number = [](const char* variable) -> int64_t {
    const char* const text = std::getenv(variable);
    int64_t value = 0;
    return text != nullptr && absl::SimpleAtoi(text, &value) ? value : 0;
  };
  const int64_t microseconds = number("WATCHDOG_USEC");
  const bool is_for_another = std::getenv("WATCHDOG_PID") != nullptr &&
                              number("WATCHDOG_PID") != getpid();
  return microseconds <= 0 || is_for_another ? absl::InfiniteDuration()
                                             : absl::Microseconds(microseconds);
}

}  // namespace dcp::server
