// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/uring_queue.h"

#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/io/posix_error.h"

namespace dcp {
namespace {

// The longest piece that the kernel registers at once. A multiple of the block
// size, so that no block lies in two pieces.
constexpr uint64_t kMaxRegisteredBytes = uint64_t{1} << 30;
static_assert(kMaxRegisteredBytes % kBlockBytes == 0);

// Whether io_uring_enter has to be called again: a signal came, or completions
// must be taken or memory freed first.
bool IsTransient(int error) {
  return error == EINTR || error == EAGAIN || error == EBUSY;
}

class UringQueue final : public IoQueue {
 public:
  UringQueue(const io_uring& ring, uint32_t depth, std::span<uint8_t> memory)
      : ring_(ring), depth_(depth), memory_(memory) {
    Register();
  }

  ~UringQueue() override {
    std::vector<IoRequest*> lost;
    while (in_flight_ > 0) {
      const absl::Status status = Reap(lost);
      DCP_CHECK(status.ok(), status.message());
    }
    io_uring_queue_exit(&ring_);
  }

  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override { return in_flight_; }

  absl::Status Submit(IoRequest* request) override {
    DCP_CHECK(in_flight_ < depth_, "depth=", depth_);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    DCP_CHECK(sqe != nullptr);  // the ring has at least `depth_` places
    Prepare(*request, *sqe);
    io_uring_sqe_set_data(sqe, request);
    ++in_flight_;
    // The entry is in the ring whatever the kernel answers now; Reap submits
    // the rest and reports an error that persists.
    io_uring_submit(&ring_);
    return absl::OkStatus();
  }

  absl::Status Reap(std::vector<IoRequest*>& done) override {
    if (in_flight_ == 0) return absl::OkStatus();
    const size_t before = done.size();
    for (uint32_t tries = 0; tries < kMaxIoTries; ++tries) {
      TakeCompletions(done);
      if (done.size() > before) return absl::OkStatus();
      const int result = io_uring_submit_and_wait(&ring_, 1);
      if (result < 0 && !IsTransient(-result)) {
        return PosixError(-result, "io_uring");
      }
      if (result >= 0) tries = 0;
    }
    return PosixError(EAGAIN, "io_uring");
  }

 private:
  void Register() {
    std::vector<iovec> pieces;
    for (uint64_t at = 0; at < memory_.size(); at += kMaxRegisteredBytes) {
      pieces.push_back(
          {.iov_base = memory_.data() + at,
           .iov_len = std::min(memory_.size() - at, kMaxRegisteredBytes)});
    }
    registered_ =
        !pieces.empty() &&
        io_uring_register_buffers(&ring_, pieces.data(),
                                  static_cast<unsigned>(pieces.size())) == 0;
  }

  // The registered piece that holds all the request's memory.
  std::optional<int> FindRegisteredPiece(const IoRequest& request) const {
    if (!registered_ || request.data < memory_.data()) return std::nullopt;
    const uint64_t begin = static_cast<uint64_t>(request.data - memory_.data());
    const uint64_t piece = begin / kMaxRegisteredBytes;
    const uint64_t piece_end =
        std::min(memory_.size(), (piece + 1) * kMaxRegisteredBytes);
    if (begin >= piece_end || request.length > piece_end - begin) {
      return std::nullopt;
    }
    return static_cast<int>(piece);
  }

  void Prepare(const IoRequest& request, io_uring_sqe& sqe) const {
    const std::optional<int> piece = FindRegisteredPiece(request);
    const bool read = request.op == IoRequest::Op::kRead;
    if (piece.has_value() && read) {
      io_uring_prep_read_fixed(&sqe, request.file, request.data, request.length,
                               request.offset, *piece);
    } else if (piece.has_value()) {
      io_uring_prep_write_fixed(&sqe, request.file, request.data,
                                request.length, request.offset, *piece);
    } else if (read) {
      io_uring_prep_read(&sqe, request.file, request.data, request.length,
                         request.offset);
    } else {
      io_uring_prep_write(&sqe, request.file, request.data, request.length,
                          request.offset);
    }
  }

  void TakeCompletions(std::vector<IoRequest*>& done) {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0 && cqe != nullptr) {
      IoRequest* request = static_cast<IoRequest*>(io_uring_cqe_get_data(cqe));
      request->result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      --in_flight_;
      done.push_back(request);
    }
  }

  io_uring ring_;
  const uint32_t depth_;
  uint32_t in_flight_ = 0;
  const std::span<uint8_t> memory_;
  bool registered_ = false;
};

// Whether a request comes back: a sandbox may allow io_uring_setup and deny
// io_uring_enter. Otherwise that would show only when requests are lost.
absl::Status Probe(io_uring& ring) {
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring);
  DCP_CHECK(sqe != nullptr);
  io_uring_prep_nop(sqe);
  for (uint32_t tries = 0; tries < kMaxIoTries; ++tries) {
    const int submitted = io_uring_submit_and_wait(&ring, 1);
    if (submitted < 0 && !IsTransient(-submitted)) {
      return PosixError(-submitted, "io_uring");
    }
    io_uring_cqe* cqe = nullptr;
    if (io_uring_peek_cqe(&ring, &cqe) != 0 || cqe == nullptr) continue;
    io_uring_cqe_seen(&ring, cqe);
    return absl::OkStatus();
  }
  return PosixError(EAGAIN, "io_uring");
}

}  // namespace

absl::StatusOr<std::unique_ptr<IoQueue>> NewUringQueue(
    uint32_t depth, std::span<uint8_t> memory) {
  DCP_CHECK(depth > 0);
  io_uring ring;
  const int result = io_uring_queue_init(depth, &ring, 0);
  if (result < 0) return PosixError(-result, "io_uring");
  if (absl::Status works = Probe(ring); !works.ok()) {
    io_uring_queue_exit(&ring);
    return works;
  }
  return std::make_unique<UringQueue>(ring, depth, memory);
}

}  // namespace dcp
