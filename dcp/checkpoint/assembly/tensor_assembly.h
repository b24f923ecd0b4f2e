// SPDX-License-Identifier: Apache-2.0
// TensorAssembly: assembles a whole tensor from disjoint boxes that several
// ranks hold, window by window, in the whole tensor's row-major order. The
// elements that one window needs from a box are contiguous in the box's own
// order, so each rank sends every box as it is, piece by piece. Pure; const
// methods are for any thread.
#ifndef DCP_CHECKPOINT_ASSEMBLY_TENSOR_ASSEMBLY_H_
#define DCP_CHECKPOINT_ASSEMBLY_TENSOR_ASSEMBLY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// A window's approximate size.
inline constexpr uint64_t kAssemblyWindowBytes = uint64_t{1} << 20;

class TensorAssembly {
 public:
  // `parts` are disjoint boxes inside `shape`: all parts of the tensor, or the
  // parts that one rank holds and sends.
  TensorAssembly(Dims shape, DType dtype, std::vector<Box> parts);

  uint64_t num_bytes() const { return num_elements_ * element_bytes_; }
  uint64_t num_windows() const;
  size_t num_parts() const { return parts_.size(); }

  // A byte stretch in a row-major image.
  struct Stretch {
    uint64_t begin = 0;
    uint64_t end = 0;

    uint64_t length() const { return end - begin; }
  };
  // In the whole tensor's image.
  Stretch WindowAt(uint64_t window) const;
  // The window's bytes that a part holds, in the part's own image; often none.
  Stretch Needed(uint64_t window, size_t part) const;

  // Copies `bytes`, which Needed names for the part, to their places in the
  // window `dst`.
  void Place(uint64_t window, size_t part, ByteSpan bytes,
             MutableByteSpan dst) const;

 private:
  // How many elements in a part come before the whole's element `number`.
  uint64_t ElementsBefore(const Box& part, uint64_t number) const;

  const Dims shape_;
  const std::vector<Box> parts_;
  const uint64_t element_bytes_;
  const uint64_t num_elements_;
  const uint64_t window_elements_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_ASSEMBLY_TENSOR_ASSEMBLY_H_
