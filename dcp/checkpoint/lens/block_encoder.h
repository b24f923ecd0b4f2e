// SPDX-License-Identifier: Apache-2.0
// BlockEncoder: the float8 codes of a tensor in blocks of 128 x 128, and their
// scales; see LensedTensor::EncodedFloat8. It reads whole blocks, of which it
// holds one row at a time, and at most kMaxEncodedBytes. Used by one thread,
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

// What is held of the values at once, in addition to the pool.
inline constexpr uint64_t kMaxEncodedBytes = uint64_t{8} << 20;

// The elements of codes or scales that are in `window`, which go to `dst`.
struct EncodedWindow {
  const LensedTensor* tensor;  // is_encoded()
  Window window;
  uint8_t* dst;
};

class BlockEncoder {
 public:
  // Reads a box of a table, in row-major order, to `dst` as the type given.
  using ReadTable = absl::FunctionRef<absl::Status(
      const LensTable& table, const Box& box, DType as, uint8_t* dst)>;

  // The boxes of the values that Run reads for `work`.
  static void ForEachTile(const EncodedWindow& work,
                          absl::FunctionRef<void(const Box& tile)> visit);

  // FailedPrecondition if an element of a block is not finite; errors of
  // `read`.
  absl::Status Run(const EncodedWindow& work, ReadTable read);

 private:
  absl::Status Get(const LensedTensor& tensor, const Box& tile, ReadTable read);
  absl::Status FindFactors(const LensedTensor& tensor);
  void WriteCodes(const EncodedWindow& work) const;
  void WriteScales(const EncodedWindow& work) const;

  // The tile that was read last, which the next window mostly needs too.
  const LensedTensor* tile_of_ = nullptr;
  Box tile_;
  std::vector<uint8_t> values_;  // its elements, as they are stored
  std::vector<float> factors_;   // what those of each block are multiplied by
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_BLOCK_ENCODER_H_
