// SPDX-License-Identifier: Apache-2.0

#include "server/memory/client_account.h"

#include "absl/strings/str_cat.h"
#include "server/process/refusal.h"

namespace dcp::server {
namespace {

// Streams take seconds. (The rate allows further calls within a second.)
constexpr int64_t kStreamRetryMs = 2000;
constexpr int64_t kRateRetryMs = 1000;

TokenBucket::Limits RequestRate(const ClientLimits& limits) {
  const auto rate = static_cast<double>(limits.requests_per_second);
  return {.burst = kBurstSeconds * rate, .per_second = rate};
}

}  // namespace

ClientAccount::ClientAccount(const std::string& name,
                             const ClientLimits& limits)
    : name_(name),
      limits_(limits),
      requests_(RequestRate(limits)),
      parsed_requests_(RequestRate(limits)),
      memory_(limits.memory_bytes) {}

absl::Status ClientAccount::CountRequest(absl::Duration now) {
  last_request_ns_.store(absl::ToInt64Nanoseconds(now));
  if (requests_.Take(now)) return absl::OkStatus();
  return LimitReached(
      {.name = "max-requests-per-second",
       .value = static_cast<uint64_t>(limits_.requests_per_second),
       .retry_after_ms = kRateRetryMs},
      absl::StrCat(name_, " sends more than ", limits_.requests_per_second,
                   " requests a second, the most for one client "
                   "(max-requests-per-second): ask less often"));
}

absl::Status ClientAccount::CheckParsing(absl::Duration now) {
  if (parsed_requests_.Take(now, /*amount=*/0)) return absl::OkStatus();
  const uint64_t bytes_per_second =
      static_cast<uint64_t>(limits_.requests_per_second) *
      kParsedBytesPerRequest;
  return LimitReached(
      {.name = "max-requests-per-second",
       .value = static_cast<uint64_t>(limits_.requests_per_second),
       .retry_after_ms = kRateRetryMs},
      absl::StrCat("the requests of ", name_, " took more than ",
                   bytes_per_second,
                   " bytes of memory a second, the most for one client "
                   "(max-requests-per-second times ",
                   kParsedBytesPerRequest,
                   "): send smaller requests, or ask less often"));
}

void ClientAccount::CountParsing(absl::Duration now, uint64_t bytes) {
  last_request_ns_.store(absl::ToInt64Nanoseconds(now));
  parsed_requests_.Take(now, static_cast<double>(bytes) /
                                 static_cast<double>(kParsedBytesPerRequest));
}

bool ClientAccount::IsIdle(absl::Duration now) const {
  return now - absl::Nanoseconds(last_request_ns_.load()) >
         absl::Seconds(kBurstSeconds);
}

absl::Status ClientAccount::BeginStream() {
  if (num_streams_.fetch_add(1) < limits_.num_streams) return absl::OkStatus();
  num_streams_.fetch_sub(1);
  return LimitReached(
      {.name = "max-streams-per-client",
       .value = static_cast<uint64_t>(limits_.num_streams),
       .retry_after_ms = kStreamRetryMs},
      absl::StrCat(name_, " has ", limits_.num_streams,
                   " streams, the most for one client "
                   "(max-streams-per-client): read them to their end, or begin "
                   "fewer at a time"));
}

}  // namespace dcp::server
