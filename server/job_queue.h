// JobQueue: jobs that wait, a row for each client; clients take turns, so that
// one who submits a thousand delays nobody else's first. Thread-compatible.
#ifndef SERVER_JOB_QUEUE_H_
#define SERVER_JOB_QUEUE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace dcp::server {

class JobQueue {
 public:
  void Push(const std::string& client, int64_t job);
  // As the client's next: one that was popped and could not begin.
  void PushFront(const std::string& client, int64_t job);
  // The next, of the client after the last one's.
  std::optional<int64_t> Pop();
  // Whether it was there.
  bool Remove(const std::string& client, int64_t job);

  uint64_t size() const { return size_; }

 private:
  std::map<std::string, std::deque<int64_t>> rows_;  // none is empty
  std::string last_client_;
  uint64_t size_ = 0;
};

}  // namespace dcp::server

#endif  // SERVER_JOB_QUEUE_H_
