// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/blocking_queue.h"

#include <unistd.h>

#include <cerrno>

#include "dcp/base/check.h"

namespace dcp {

BlockingQueue::BlockingQueue(uint32_t depth) : depth_(depth) {
  DCP_CHECK(depth > 0);
  waiting_.reserve(depth);
}

absl::Status BlockingQueue::Submit(IoRequest* request) {
  DCP_CHECK(waiting_.size() < depth_, "depth=", depth_);
  waiting_.push_back(request);
  return absl::OkStatus();
}

absl::Status BlockingQueue::Reap(std::vector<IoRequest*>& done) {
  if (waiting_.empty()) return absl::OkStatus();
  // One at a time: the owner handles it before the next one is carried out.
  IoRequest* request = waiting_.front();
  waiting_.erase(waiting_.begin());
  const off_t offset = static_cast<off_t>(request->offset);
  const ssize_t moved =
      request->op == IoRequest::Op::kRead
          ? pread(request->file, request->data, request->length, offset)
          : pwrite(request->file, request->data, request->length, offset);
  request->result = moved < 0 ? -errno : moved;
  done.push_back(request);
  return absl::OkStatus();
}

}  // namespace dcp
