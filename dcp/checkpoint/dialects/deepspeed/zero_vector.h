// SPDX-License-Identifier: Apache-2.0
// ZeroVector: one rank's part of a flat vector in DeepSpeed's ZeRO: master
// weights or an optimizer's moment, in one or several tensors. Used by one
// thread.
#ifndef DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_VECTOR_H_
#define DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_VECTOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

class ZeroVector {
 public:
  // Appends a tensor with one chunk. DataLoss unless it has one dimension and
  // the same dtype as earlier ones.
  absl::Status Append(TensorEntry tensor);

  int64_t size() const { return size_; }
  bool empty() const { return tensors_.empty(); }

  // The elements [begin, begin + count) of a vector, which are a parameter's
  // row-major elements from `parameter_begin` on.
  struct Range {
    int64_t begin = 0;
    int64_t count = 0;
    int64_t parameter_begin = 0;
  };

  // Adds the range to the tensor at `path`, which has `shape`, as rank `rank`'s
  // part. DataLoss when the vector is too short.
  absl::Status AddTo(StateCollector& collector, const StatePath& path,
                     int64_t rank, Range range, const Dims& shape) const;

 private:
  std::vector<TensorEntry> tensors_;
  std::vector<int64_t> begins_;  // parallel to tensors_
  int64_t size_ = 0;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_VECTOR_H_
