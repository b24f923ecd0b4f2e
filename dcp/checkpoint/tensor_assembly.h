// TensorAssembly: how a whole tensor is put together out of disjoint boxes that
// several ranks hold, window by window, in the row-major order of the whole.
// The elements of a box that one window needs follow each other in the box's
// own order, so that each rank sends its boxes as they are, piece by piece.
// Pure; const methods are for any thread.
#ifndef DCP_CHECKPOINT_TENSOR_ASSEMBLY_H_
#define DCP_CHECKPOINT_TENSOR_ASSEMBLY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// Of a window, about.
inline constexpr uint64_t kAssemblyWindowBytes = uint64_t{1} << 20;

class TensorAssembly {
 public:
  // `parts` are disjoint boxes inside `shape`: all of the tensor's, or those of
  // one rank, which sends them.
  TensorAssembly(Dims shape, DType dtype, std::vector<Box> parts);

  uint64_t num_bytes() const { return num_elements_ * element_bytes_; }
  uint64_t num_windows() const;
  size_t num_parts() const { return parts_.size(); }

  // Bytes of a row-major image.
  struct Stretch {
    uint64_t begin = 0;
    uint64_t end = 0;

    uint64_t length() const { return end - begin; }
  };
  // Of the whole.
  Stretch Window(uint64_t window) const;
  // What that window has of a part, in the part's own image; often nothing.
  Stretch Needed(uint64_t window, size_t part) const;

  // Puts what Needed says of a part, `bytes`, to its places in the window,
  // `dst`.
  void Place(uint64_t window, size_t part, ByteSpan bytes,
             MutableByteSpan dst) const;

 private:
  // How many elements of a part come before element `number` of the whole.
  uint64_t ElementsBefore(const Box& part, uint64_t number) const;

  const Dims shape_;
  const std::vector<Box> parts_;
  const uint64_t element_bytes_;
  const uint64_t num_elements_;
  const uint64_t window_elements_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_TENSOR_ASSEMBLY_H_
