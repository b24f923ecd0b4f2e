// SPDX-License-Identifier: Apache-2.0
// Admission: decides whether a call may begin: identifies the caller (Access)
// and refuses a client that calls too often (ClientAccount). Clients are
// distinguished by their names in the tokens file. Without tokens they are
// distinguished by address: an IPv4 address, a /64 of IPv6, and one client for
// all callers through a unix socket. Thread-safe; never blocks.
#ifndef SERVER_ACCESS_ADMISSION_H_
#define SERVER_ACCESS_ADMISSION_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "grpcpp/server_context.h"
#include "server/access/access.h"
#include "server/memory/client_account.h"

namespace dcp::server {

// "10.0.0.7" for "ipv4:10.0.0.7:4711"; "2001:db8:0:1::/64" for an IPv6 peer;
// "unix" for a unix socket.
std::string PeerAddress(absl::string_view peer);

class Admission {
 public:
  struct Caller {
    const Client* client = nullptr;  // lives as long as the Access
    std::shared_ptr<ClientAccount> account;
  };

  // `access` outlives this.
  Admission(const Access& access, const ClientLimits& limits)
      : access_(access), limits_(limits) {}

  const Access& access() const { return access_; }

  // Counts a call. Unauthenticated as from Access, or ResourceExhausted with a
  // retry-after.
  absl::StatusOr<Caller> Admit(const grpc::ServerContextBase& context);

  // The account of a client that calls at `now`, a time of SteadyNow.
  std::shared_ptr<ClientAccount> AccountFor(const std::string& name,
                                            absl::Duration now);

 private:
  const Access& access_;
  const ClientLimits limits_;
  absl::Mutex mutex_;
  // At most kMaxAccounts; clients beyond that share one account.
  absl::flat_hash_map<std::string, std::shared_ptr<ClientAccount>> accounts_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_ACCESS_ADMISSION_H_
