// SPDX-License-Identifier: Apache-2.0
// ClientAccount: how much of the server one client uses, and the limits, so
// that no client crowds out the others: concurrent streams, memory for calls,
// and calls per second. Owners: the table of accounts, and each call.
// Thread-safe; never blocks.
#ifndef SERVER_MEMORY_CLIENT_ACCOUNT_H_
#define SERVER_MEMORY_CLIENT_ACCOUNT_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "server/memory/memory_budget.h"
#include "server/process/token_bucket.h"

namespace dcp::server {

struct ClientLimits {
  int64_t num_streams = 0;
  uint64_t memory_bytes = 0;
  int64_t requests_per_second = 0;
};

class ClientAccount {
 public:
  // `name` is the client's name in error messages.
  ClientAccount(const std::string& name, const ClientLimits& limits);
  ClientAccount(const ClientAccount&) = delete;
  ClientAccount& operator=(const ClientAccount&) = delete;

  const std::string& name() const { return name_; }

  // Counts a call at `now`, a time of SteadyNow. ResourceExhausted with a
  // retry-after if the client exceeds the rate. The client may make the calls
  // of kBurstSeconds at once.
  absl::Status CountRequest(absl::Duration now);
  // Whether a request may be parsed at `now`, before the memory that it takes
  // is known: ResourceExhausted with a retry-after if the client's recent
  // requests took too much.
  absl::Status CheckParsing(absl::Duration now);
  // Counts a request that takes this many bytes when it is parsed.
  void CountParsing(absl::Duration now, uint64_t bytes);
  // Whether the last call was so long ago that it no longer affects the rate.
  bool IsIdle(absl::Duration now) const;

  // ResourceExhausted with a retry-after if the client has as many streams as
  // allowed. After OK, EndStream must follow.
  absl::Status BeginStream();
  void EndStream() { num_streams_.fetch_sub(1); }

  // For the client's calls. Must outlive the reservations.
  MemoryBudget& memory() { return memory_; }

 private:
  const std::string name_;
  const ClientLimits limits_;
  TokenBucket requests_;
  TokenBucket parsed_requests_;  // in units of kParsedBytesPerRequest
  std::atomic<int64_t> num_streams_{0};
  std::atomic<int64_t> last_request_ns_{0};
  MemoryBudget memory_;
};

// For each call that a client may make in a second, parsing requests may take
// this much memory in a second. gRPC parses requests on the few threads that
// all clients share, some hundred MiB a second.
inline constexpr uint64_t kParsedBytesPerRequest = uint64_t{64} << 10;

// A client may make this many seconds' worth of calls at once, because all
// ranks of a job ask at the same moment.
inline constexpr int kBurstSeconds = 10;

}  // namespace dcp::server

#endif  // SERVER_MEMORY_CLIENT_ACCOUNT_H_
