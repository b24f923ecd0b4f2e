// SPDX-License-Identifier: Apache-2.0
// JobQueue: waiting jobs, in one row per client. Clients take turns, so that a
// client with a thousand jobs does not delay the first job of another.
// Thread-compatible.
#ifndef SERVER_JOBS_JOB_QUEUE_H_
#define SERVER_JOBS_JOB_QUEUE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace dcp::server {

class JobQueue {
 public:
  void Push(const std::string& client, int64_t job);
  // The next job, from the client after the one that was served last.
  std::optional<int64_t> Pop();
  // Returns whether the job was in the queue.
  bool Remove(const std::string& client, int64_t job);

  uint64_t size() const { return size_; }

 private:
  std::map<std::string, std::deque<int64_t>> rows_;  // none is empty
  std::string last_client_;
  uint64_t size_ = 0;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_QUEUE_H_
