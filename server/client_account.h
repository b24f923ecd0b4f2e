// ClientAccount: what one client has of the server, and what it may have, so
// that it keeps no other out: streams and the memory of its calls at a time,
// and calls a second. Owners: the table of accounts, and each call.
// Thread-safe; never blocks.
#ifndef SERVER_CLIENT_ACCOUNT_H_
#define SERVER_CLIENT_ACCOUNT_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/memory_budget.h"
#include "server/token_bucket.h"

namespace dcp::server {

struct ClientLimits {
  int64_t num_streams = 0;
  uint64_t memory_bytes = 0;
  int64_t requests_per_second = 0;
};

class ClientAccount {
 public:
  // `name` is how errors call the client.
  ClientAccount(const std::string& name, const ClientLimits& limits);
  ClientAccount(const ClientAccount&) = delete;
  ClientAccount& operator=(const ClientAccount&) = delete;

  const std::string& name() const { return name_; }

  // Counts a call that comes at `now`, of SteadyNow. ResourceExhausted, with a
  // time to try again, beyond the rate; kBurstSeconds' worth may come at once.
  absl::Status CountRequest(absl::Duration now);
  // Whether nobody called for so long that all it did is forgotten.
  bool IsIdle(absl::Duration now) const;

  // ResourceExhausted, with a time to try again, when it has as many streams as
  // one client may; otherwise EndStream follows.
  absl::Status BeginStream();
  void EndStream() { num_streams_.fetch_sub(1); }

  // Of its calls; outlives what is reserved of it.
  MemoryBudget& memory() { return memory_; }

 private:
  const std::string name_;
  const ClientLimits limits_;
  TokenBucket requests_;
  std::atomic<int64_t> num_streams_{0};
  std::atomic<int64_t> last_request_ns_{0};
  MemoryBudget memory_;
};

// Seconds of a client's rate that may come at once: all ranks of a job ask at
// the same moment.
inline constexpr int kBurstSeconds = 10;

}  // namespace dcp::server

#endif  // SERVER_CLIENT_ACCOUNT_H_
