// SPDX-License-Identifier: Apache-2.0
// Communicator: a collective's ranks as NCCL knows them. Operations run one
// after the other, in the order of issue. The first use makes it, and the host
// waits there until every rank has come. A wrong order of first uses therefore
// hangs in NCCL; here it is an error with names. Any thread.
#ifndef TESTS_TESTING_SIM_DEVICE_COMMUNICATOR_H_
#define TESTS_TESTING_SIM_DEVICE_COMMUNICATOR_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "c10/core/Stream.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace sim {

class Communicator {
 public:
  // `members` are ranks in the group, `rank` is this one. Collective over the
  // members. Throws c10::DistBackendError, which names ranks that do not come.
  Communicator(const std::string& name, c10d::Store& store, int rank,
               const std::vector<int>& members, c10::DeviceIndex device);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // The stream on which asynchronous operations run.
  c10::Stream stream() const { return stream_; }
  // The next operation's place; taken when it is issued.
  uint64_t TakeTicket();
  // Runs the operation when those before it are done; on a stream's thread.
  void Run(uint64_t ticket, const std::function<void()>& operation);

 private:
  const c10::Stream stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t num_issued_ = 0;
  uint64_t num_done_ = 0;
};

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_COMMUNICATOR_H_
