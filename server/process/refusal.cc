// SPDX-License-Identifier: Apache-2.0

#include "server/process/refusal.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"

namespace dcp::server {
namespace {

// By then a daemon that restarts is available again.
constexpr int64_t kRestartMs = 2000;

}  // namespace

absl::Status LimitReached(const ReachedLimit& limit,
                          absl::string_view message) {
  return WithReason(WithRetryAfter(absl::ResourceExhaustedError(message),
                                   limit.retry_after_ms),
                    ErrorReason::LIMIT_REACHED,
                    {{"limit", std::string(limit.name)},
                     {"value", absl::StrCat(limit.value)}});
}

absl::Status RequestTooLarge(absl::string_view limit, uint64_t value,
                             absl::string_view message) {
  return WithReason(
      absl::ResourceExhaustedError(message), ErrorReason::REQUEST_TOO_LARGE,
      {{"limit", std::string(limit)}, {"value", absl::StrCat(value)}});
}

absl::Status ServerDraining() {
  return WithReason(
      WithRetryAfter(absl::UnavailableError("the server is shutting down; jobs "
                                            "continue after the next start"),
                     kRestartMs),
      ErrorReason::SERVER_DRAINING);
}

}  // namespace dcp::server
