// SPDX-License-Identifier: Apache-2.0
// Refusals that are not the client's mistake, because of a limit or because the
// server shuts down, with the reason and the retry-after that clients expect.
// Pure; any thread.
#ifndef SERVER_PROCESS_REFUSAL_H_
#define SERVER_PROCESS_REFUSAL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dcp::server {

// When a refused call may try again: about the time in which a stream sends a
// few windows.
inline constexpr int64_t kRetryAfterMs = 2000;

// The limit that a refusal reports: the name (an option of the server, or the
// resource of which there is too much), and the value.
struct ReachedLimit {
  absl::string_view name;
  uint64_t value = 0;
  int64_t retry_after_ms = 5000;  // jobs take seconds to hours
};

// ResourceExhausted for a limit on things that exist at one time: the same call
// may succeed later.
absl::Status LimitReached(const ReachedLimit& limit, absl::string_view message);

// ResourceExhausted for a call that needs more than the server has in all: the
// same call never succeeds.
absl::Status RequestTooLarge(absl::string_view limit, uint64_t value,
                             absl::string_view message);

// Unavailable: the server is about to stop.
absl::Status ServerDraining();

}  // namespace dcp::server

#endif  // SERVER_PROCESS_REFUSAL_H_
