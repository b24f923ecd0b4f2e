// SPDX-License-Identifier: Apache-2.0
// IoQueue on pread and pwrite, for systems that refuse io_uring; also the
// easiest implementation to read. Each Reap carries out the oldest request and
// returns it.
#ifndef DCP_IO_BLOCKING_QUEUE_H_
#define DCP_IO_BLOCKING_QUEUE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "dcp/io/io_queue.h"

namespace dcp {

class BlockingQueue final : public IoQueue {
 public:
  explicit BlockingQueue(uint32_t depth);

  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override {
    return static_cast<uint32_t>(waiting_.size());
  }
  absl::Status Submit(IoRequest* request) override;
  absl::Status Reap(std::vector<IoRequest*>& done) override;

 private:
  uint32_t depth_;
  std::vector<IoRequest*> waiting_;  // in submission order
};

}  // namespace dcp

#endif  // DCP_IO_BLOCKING_QUEUE_H_
