// SPDX-License-Identifier: Apache-2.0
// IoQueue: positioned reads and writes that are submitted and complete later.
// UringQueue, BlockingQueue and, in tests, the simulated disk implement it, and
// ObjectQueue does so for object stores. It hides how requests reach the
// kernel. It does not retry, split or align: Pipeline does. A queue belongs to
// one thread.
#ifndef DCP_IO_IO_QUEUE_H_
#define DCP_IO_IO_QUEUE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace dcp {

// A file opened by a FileSystem.
using FileHandle = int;

// While a request is in flight, the queue owns it and the memory it points to:
// the submitter touches neither until Reap hands the request back.
struct IoRequest {
  enum class Op : uint8_t { kRead, kWrite };
  Op op = Op::kRead;
  FileHandle file = -1;
  uint64_t offset = 0;
  uint8_t* data = nullptr;
  uint32_t length = 0;
  // After completion: bytes moved (possibly fewer than length), or -errno, or
  // an error that no errno describes.
  int64_t result = 0;
  absl::Status error = {};
  void* context = nullptr;  // for the submitter
};

class IoQueue {
 public:
  // Waits for the requests in flight; their owner does not get them back.
  virtual ~IoQueue() = default;

  // The maximum number of requests in flight.
  virtual uint32_t depth() const = 0;
  virtual uint32_t in_flight() const = 0;

  // Takes `request`; requires in_flight() < depth(). It may start at once or at
  // the next Reap. An error means that it was not taken.
  virtual absl::Status Submit(IoRequest* request) = 0;

  // Waits until at least one request is complete (unless none is in flight) and
  // appends all complete ones to `done`.
  virtual absl::Status Reap(std::vector<IoRequest*>& done) = 0;

  // Lets the requests in flight end early, with an error, where they could take
  // long. Any thread.
  virtual void Cancel() {}
};

}  // namespace dcp

#endif  // DCP_IO_IO_QUEUE_H_
