// SPDX-License-Identifier: Apache-2.0

#include "server/access/admission.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"

namespace dcp::server {
namespace {

// Each takes some hundred bytes. This is more than the connections in ten
// seconds.
constexpr size_t kMaxAccounts = 10'000;
constexpr char kOthers[] = "too many clients";

}  // namespace

std::string PeerAddress(absl::string_view peer) {
  if (absl::ConsumePrefix(&peer, "ipv4:")) {
    return std::string(peer.substr(0, peer.rfind(':')));
  }
  if (!absl::ConsumePrefix(&peer, "ipv6:")) return "unix";
  std::string text = absl::StrReplaceAll(
      peer.substr(0, peer.rfind(':')),
      {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}, {"%25", "%"}});
  text = text.substr(0, text.find('%'));  // without the scope
  in6_addr address;
  if (inet_pton(AF_INET6, text.c_str(), &address) != 1) return text;
  std::fill(address.s6_addr + 8, address.s6_addr + 16, 0);
  char network[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &address, network, sizeof(network));
  return absl::StrCat(network, "/64");
}

absl::StatusOr<Admission::Caller> Admission::Admit(
    const grpc::ServerContextBase& context) {
  Caller caller;
  DCP_ASSIGN_OR_RETURN(caller.client, access_.Authenticate(context));
  const absl::Duration now = SteadyNow();
  caller.account =
      AccountFor(access_.has_tokens() ? caller.client->name()
                                      : PeerAddress(context.peer()),
                 now);
  DCP_RETURN_IF_ERROR(caller.account->CountRequest(now));
  return caller;
}

std::shared_ptr<ClientAccount> Admission::AccountFor(const std::string& name,
                                                     absl::Duration now) {
  absl::MutexLock lock(&mutex_);
  const auto found = accounts_.find(name);
  if (found != accounts_.end()) return found->second;
  if (accounts_.size() >= kMaxAccounts) {
    absl::erase_if(accounts_, [now](const auto& account) {
      return account.second.use_count() == 1 && account.second->IsIdle(now);
    });
  }
  const std::string key = accounts_.size() < kMaxAccounts ? name : kOthers;
  std::shared_ptr<ClientAccount>& account = accounts_[key];
  if (account == nullptr) {
    account = std::make_shared<ClientAccount>(key, limits_);
  }
  return account;
}

}  // namespace dcp::server
