// Refusals that are nobody's mistake, with the reason and the time to try again
// that clients expect: a limit of the server, or its end. Pure; any thread.
#ifndef SERVER_REFUSAL_H_
#define SERVER_REFUSAL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dcp::server {

// What a refusal says of its limit: an option of the server, or what there is
// too much of, and how much is allowed.
struct ReachedLimit {
  absl::string_view name;
  uint64_t value = 0;
  int64_t retry_after_ms = 5000;  // jobs take seconds to hours
};

// ResourceExhausted, and the same call may succeed later: there are as many now
// as the limit allows at a time.
absl::Status LimitReached(const ReachedLimit& limit, absl::string_view message);

// ResourceExhausted, and the same call never succeeds: it asks for more than
// the server has in all.
absl::Status RequestTooLarge(absl::string_view limit, uint64_t value,
                             absl::string_view message);

// Unavailable: the server is about to stop.
absl::Status ServerDraining();

}  // namespace dcp::server

#endif  // SERVER_REFUSAL_H_
