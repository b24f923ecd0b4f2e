// SPDX-License-Identifier: Apache-2.0
// The steps that begin every call: admission, counting, opening, locating.
//
// Tested by tests/server/reading/checkpoint_service_test.cc.
#include "server/reading/checkpoint_calls.h"

#include "dcp/base/status.h"
#include "server/access/disk_timeout.h"
#include "server/process/refusal.h"
#include "server/reading/timed_answer.h"

namespace dcp::server {
namespace {}  // namespace

absl::StatusOr<Admission::Caller> CheckpointCalls::Admit(
    const grpc::CallbackServerContext& context) {
  if (draining_.load()) return ServerDraining();
  return admission_.Admit(context);
}

absl::Status CheckpointCalls::BeginStream(ClientAccount& account) {
  DCP_RETURN_IF_ERROR(account.BeginStream());
  if (num_streams_.fetch_add(1) < limits_.max_streams) return absl::OkStatus();
  EndStream(account);
  return LimitReached(
      {.name = "max-streams",
       .value = static_cast<uint64_t>(limits_.max_streams),
       .retry_after_ms = kRetryAfterMs},
      absl::StrCat("there are ", limits_.max_streams,
                   " streams already, which is the limit of the server"));
}

void CheckpointCalls::EndStream(ClientAccount& account) {
  num_streams_.fetch_sub(1);
  account.EndStream();
}

void CheckpointCalls::Locate(const Caller& caller, SharedCheckpoint& shared,
                             std::vector<uint32_t> entries,
                             SharedCheckpoint::Located done) {
  const auto answer = TimedAnswer<absl::Status>::Start(
      limits_.disk_timeout,
      DiskTimeoutError(*caller.client, shared.checkpoint().path(),
                       limits_.disk_timeout),
      std::move(done));
  shared.Locate(
      caller.account->name(), std::move(entries),
      [answer](absl::Status status) { answer->Give(std::move(status)); });
}

}  // namespace dcp::server
