// SPDX-License-Identifier: Apache-2.0
// PartStream: tensor parts, one after the other, as one run of bytes. The run
// can be read and written piece by piece, so that the parts can travel from one
// rank to another through a window. Both ends add the same parts in the same
// order. For one thread.
#ifndef FSDP_CHECKPOINT_RANKS_PART_STREAM_H_
#define FSDP_CHECKPOINT_RANKS_PART_STREAM_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "dcp/base/bytes.h"

namespace fsdp {

class PartStream {
 public:
  // Every part and every piece begins at a multiple of this, so that no piece
  // cuts an element.
  static constexpr uint64_t kAlignment = 16;

  // Adds `part`, which may have any strides and is aliased. It travels in
  // `wire_type`, which is the part's own type on the side that calls Read;
  // Write casts.
  void Add(const at::Tensor& part, at::ScalarType wire_type);

  uint64_t num_bytes() const { return num_bytes_; }

  // Fills `dst` with the bytes from `offset` on, which is aligned. Bytes
  // between parts are left as they are.
  void Read(uint64_t offset, dcp::MutableByteSpan dst) const;
  // Gives the parts the values in `src`.
  void Write(uint64_t offset, dcp::ByteSpan src) const;

 private:
  struct Part {
    at::Tensor tensor;
    at::ScalarType wire_type;
    uint64_t begin;  // offset in the stream
    uint64_t num_bytes;
  };

  // Calls `visit(view, wire type, position in the piece)` for the elements in
  // the `length` bytes at `offset`, in order.
  template <typename Visit>
  void ForEachView(uint64_t offset, uint64_t length, Visit visit) const;

  std::vector<Part> parts_;
  uint64_t num_bytes_ = 0;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_RANKS_PART_STREAM_H_
