// SPDX-License-Identifier: Apache-2.0
// SimQueue: SimStorage's IoQueue. It carries requests out when they are reaped:
// some of them, in a random order that the seed decides. Belongs to one thread.
#ifndef TESTS_TESTING_SIM_QUEUE_H_
#define TESTS_TESTING_SIM_QUEUE_H_

#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "dcp/io/io_queue.h"

namespace dcp::testing {

class SimStorage;

class SimQueue final : public IoQueue {
 public:
  // `storage` outlives the queue. The queue's destructor tells it that
  // `memory_bytes` are no longer in use.
  SimQueue(SimStorage& storage, uint32_t depth, uint64_t memory_bytes,
           uint64_t seed);
  ~SimQueue() override;

  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override {
    return static_cast<uint32_t>(waiting_.size());
  }
  // Unavailable after the machine has died.
  absl::Status Submit(IoRequest* request) override;
  absl::Status Reap(std::vector<IoRequest*>& done) override;

 private:
  SimStorage& storage_;
  const uint32_t depth_;
  const uint64_t memory_bytes_;
  std::mt19937_64 random_;
  std::vector<IoRequest*> waiting_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_SIM_QUEUE_H_
