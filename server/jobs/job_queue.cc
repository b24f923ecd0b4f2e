// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_queue.h"

#include <algorithm>

namespace dcp::server {

void JobQueue::Push(const std::string& client, int64_t job) {
  rows_[client].push_back(job);
  ++size_;
}

std::optional<int64_t> JobQueue::Pop() {
  if (rows_.empty()) return std::nullopt;
  auto row = rows_.upper_bound(last_client_);
  if (row == rows_.end()) row = rows_.begin();
  last_client_ = row->first;
  const int64_t job = row->second.front();
  row->second.pop_front();
  if (row->second.empty()) rows_.erase(row);
  --size_;
  return job;
}

bool JobQueue::Remove(const std::string& client, int64_t job) {
  const auto row = rows_.find(client);
  if (row == rows_.end()) return false;
  const auto found = std::find(row->second.begin(), row->second.end(), job);
  if (found == row->second.end()) return false;
  row->second.erase(found);
  if (row->second.empty()) rows_.erase(row);
  --size_;
  return true;
}

}  // namespace dcp::server
