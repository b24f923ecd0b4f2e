// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_queue.h"

#include <utility>

#include "dcp/base/check.h"
#include "tests/testing/sim_storage.h"

namespace dcp::testing {

SimQueue::SimQueue(SimStorage& storage, uint32_t depth, uint64_t memory_bytes,
                   uint64_t seed)
    : storage_(storage),
      depth_(depth),
      memory_bytes_(memory_bytes),
      random_(seed) {
  DCP_CHECK(depth > 0);
}

SimQueue::~SimQueue() { storage_.EndQueue(memory_bytes_); }

absl::Status SimQueue::Submit(IoRequest* request) {
  DCP_CHECK(in_flight() < depth_, "depth=", depth_);
  if (storage_.crashed()) return absl::UnavailableError("submit: crashed");
  waiting_.push_back(request);
  return absl::OkStatus();
}

absl::Status SimQueue::Reap(std::vector<IoRequest*>& done) {
  if (waiting_.empty()) return absl::OkStatus();
  const uint64_t num_done = 1 + random_() % waiting_.size();
  for (uint64_t i = 0; i < num_done; ++i) {
    std::swap(waiting_[random_() % waiting_.size()], waiting_.back());
    IoRequest* request = waiting_.back();
    waiting_.pop_back();
    request->result = storage_.Perform(*request);
    done.push_back(request);
  }
  return absl::OkStatus();
}

}  // namespace dcp::testing
