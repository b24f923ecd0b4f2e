// SPDX-License-Identifier: Apache-2.0
// Derives the health of each name from the roots and the journal.
//
// Tested by tests/server/server_watch_test.cc.
#include "server/transport/service_health.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace dcp::server {

std::string RootHealthName(size_t number) {
  return absl::StrCat("root/", number);
}

ServiceHealth::ServiceHealth(grpc::HealthCheckServiceInterface& grpc,
                             size_t num_roots,
                             const std::vector<size_t>& watched)
    : has_unwatched_(watched.size() < num_roots), grpc_(grpc) {
  absl::MutexLock lock(&mutex_);
  for (const size_t number : watched) {
    root_is_readable_[number] = true;
    grpc_.SetServingStatus(RootHealthName(number), true);
  }
  grpc_.SetServingStatus(kOperationsName, true);
  UpdateHealth();
}

void ServiceHealth::SetJournal(bool is_usable) {
  absl::MutexLock lock(&mutex_);
  journal_is_usable_ = is_usable;
  UpdateHealth();
}

void ServiceHealth::SetRoot(size_t number, bool is_readable, bool is_usable) {
  absl::MutexLock lock(&mutex_);
  root_is_readable_[number] = is_readable;
  grpc_.SetServingStatus(RootHealthName(number), is_usable);
  UpdateHealth();
}

void ServiceHealth::UpdateHealth() {
  const bool can_read =
      has_unwatched_ ||
      std::any_of(root_is_readable_.begin(), root_is_readable_.end(),
                  [](const auto& root) { return root.second; });
  grpc_.SetServingStatus(kCheckpointServiceName, can_read);
  grpc_.SetServingStatus(kJobServiceName, can_read && journal_is_usable_);
}

}  // namespace dcp::server
