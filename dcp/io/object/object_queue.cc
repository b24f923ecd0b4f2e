// SPDX-License-Identifier: Apache-2.0
// An IoQueue over an ObjectStore's asynchronous calls.
// Tested by tests/dcp/io/object/object_file_system_test.cc.
#include "dcp/io/object/object_queue.h"

#include <utility>

#include "dcp/base/check.h"

namespace dcp {

ObjectQueue::~ObjectQueue() {
  Cancel();
  std::vector<IoRequest*> done;
  while (in_flight_ > 0) Reap(done).IgnoreError();
}

absl::Status ObjectQueue::Submit(IoRequest* request) {
  DCP_CHECK(in_flight_ < depth_, "depth=", depth_);
  ++in_flight_;
  std::stop_token stop;
  {
    absl::MutexLock lock(&mutex_);
    stop = stop_.get_token();
  }
  start_(
      *request, std::move(stop),
      [this, request](const absl::Status& status) { Ended(request, status); });
  return absl::OkStatus();
}

void ObjectQueue::Ended(IoRequest* request, const absl::Status& status) {
  request->error = status;
  request->result = status.ok() ? int64_t{request->length} : -1;
  absl::MutexLock lock(&mutex_);
  ended_.push_back(request);
  ended_signal_.Signal();
}

absl::Status ObjectQueue::Reap(std::vector<IoRequest*>& done) {
  if (in_flight_ == 0) return absl::OkStatus();
  {
    absl::MutexLock lock(&mutex_);
    while (ended_.empty()) ended_signal_.Wait(&mutex_);
  }
  ReapEnded(done);
  return absl::OkStatus();
}

void ObjectQueue::ReapEnded(std::vector<IoRequest*>& done) {
  absl::MutexLock lock(&mutex_);
  in_flight_ -= static_cast<uint32_t>(ended_.size());
  done.insert(done.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

void ObjectQueue::Cancel() {
  std::stop_source ended;
  {
    absl::MutexLock lock(&mutex_);
    std::swap(ended, stop_);
  }
  ended.request_stop();  // calls the store
}

}  // namespace dcp
