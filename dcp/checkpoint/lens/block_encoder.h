// SPDX-License-Identifier: Apache-2.0
// BlockEncoder: a tensor's float8 codes in blocks of 128 x 128, and their
// scales; see LensedTensor::EncodedFloat8. It reads whole blocks, holds one row
// of them at a time, and holds at most kMaxEncodedBytes. Used by one thread,
// which waits while they are read.
#ifndef DCP_CHECKPOINT_LENS_BLOCK_ENCODER_H_
#define DCP_CHECKPOINT_LENS_BLOCK_ENCODER_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "dcp/checkpoint/lens/lensed_tensor.h"
#include "dcp/plan/strided/copy_run.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// The most bytes of values held at once, in addition to the pool.
inline constexpr uint64_t kMaxEncodedBytes = uint64_t{8} << 20;

// The codes or scales in `window`, which go to `dst`.
struct EncodedWindow {
  const LensedTensor* tensor;  // is_encoded()
  Window window;
  uint8_t* dst;
};

class BlockEncoder {
 public:
  // Reads a box from a table, in row-major order, to `dst` as the given type.
  using ReadTable = absl::FunctionRef<absl::Status(
      const LensTable& table, const Box& box, DType as, uint8_t* dst)>;

  // Visits the boxes of values that Run reads for `work`.
  static void ForEachTile(const EncodedWindow& work,
                          absl::FunctionRef<void(const Box& tile)> visit);

  // FailedPrecondition if a block has an element that is not finite; errors
  // from `read`.
  absl::Status Run(const EncodedWindow& work, ReadTable read);

 private:
  absl::Status Get(const LensedTensor& tensor, const Box& tile, ReadTable read);
  absl::Status FindFactors(const LensedTensor& tensor);
  void WriteCodes(const EncodedWindow& work) const;
  void WriteScales(const EncodedWindow& work) const;

  // The last tile read; the next window mostly needs it too.
  const LensedTensor* tile_tensor_ = nullptr;
  Box tile_;
  std::vector<uint8_t> values_;  // the tile's elements, as stored
  std::vector<float> factors_;   // each block's factor
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_BLOCK_ENCODER_H_
