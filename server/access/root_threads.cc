// SPDX-License-Identifier: Apache-2.0

#include "server/access/root_threads.h"

#include <algorithm>

namespace dcp::server {

RootThreads::RootThreads(const Access& access,
                         const TaskQueue::Limits& limits) {
  for (const Root& root : access.server().roots()) {
    queues_.emplace_back(root.real_path, std::make_shared<TaskQueue>(limits));
  }
  std::stable_sort(queues_.begin(), queues_.end(),
                   [](const auto& a, const auto& b) {
                     return a.first.size() > b.first.size();
                   });
  queues_.emplace_back("", std::make_shared<TaskQueue>(limits));
}

const std::shared_ptr<TaskQueue>& RootThreads::QueueFor(
    const Client& client, absl::string_view path) {
  const Root* const root = client.FindRoot(path);
  return QueueFor(root == nullptr ? absl::string_view() : root->real_path);
}

const std::shared_ptr<TaskQueue>& RootThreads::QueueFor(
    absl::string_view real_path) {
  const auto found = std::find_if(
      queues_.begin(), queues_.end() - 1,
      [&](const auto& queue) { return IsBelow(real_path, queue.first); });
  return found->second;
}

void RootThreads::Stop() {
  for (const auto& [root, queue] : queues_) queue->Stop();
}

}  // namespace dcp::server
