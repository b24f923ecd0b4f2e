// SPDX-License-Identifier: Apache-2.0
// LensedTensor: a tensor with elements that are computed from stored ones:
// codes with a few bits, each times the block's scale; a weight plus the
// product of an adapter's matrices; the mean of the same tensor in several
// checkpoints; or the other way round, a tensor's codes and scales. Mapped
// tensors (mapped_tensor.h) use it as a source like stored ones;
// read/lens_pass.h and read/block_encoder.h compute. Immutable; any thread.
//
// [Note: lenses] The values (codes, weights, the first of several) are read and
// put in place like any tensor's, already in the requested type, which must
// hold them exactly. When all reads of a batch are in place, each element is
// computed there, in float32 (adapters and means of float64 in float64), and
// rounded once, or as torch does. The other operands are in tables; only the
// part that a window needs is read. Codes and scales are the exception: nothing
// is put in place first, because each depends on a whole block, which is read
// like a table.
#ifndef DCP_CHECKPOINT_LENS_LENSED_TENSOR_H_
#define DCP_CHECKPOINT_LENS_LENSED_TENSOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/io/file_system.h"
#include "dcp/mapping/language/rescale.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// A stored tensor, and the files that hold it.
struct LensTable {
  std::string name;  // for messages
  const TensorEntry* tensor = nullptr;
  SourceFiles* files = nullptr;
};

class LensedTensor {
 public:
  enum class Kind : uint8_t {
    kScales,        // codes times scales; the table has the scales
    kAdapter,       // W + factor * B A; the tables are A [r, in] and B [out, r]
    kMean,          // the running mean; the tables are the first, second, ...
    kRescale,       // RescaledSource explains it; it has no tables
    kEncodedCodes,  // the blocks' codes; the table has the values
    kEncodedScales,  // the blocks' scales; the table has the values
  };

  // float8_e4m3fn codes in blocks of 128 x 128; blocks at the lower and right
  // edge are cut. The scales are floating point, with the shape
  // [..., ceil(rows / 128), ceil(columns / 128)]. Becomes bfloat16.
  //
  // These functions return InvalidArgument, which names both tensors and their
  // shapes, when those do not belong together. Every tensor passed by pointer
  // must outlive the result, and be located before elements move.
  static absl::StatusOr<std::unique_ptr<const LensedTensor>> Float8Blocks(
      FileSystem& fs, const LensTable& codes, const LensTable& scales);

  // MXFP4, as OCP's Microscaling specification 1.0 defines it and gpt-oss lays
  // it out: codes with shape [..., rows, groups, 16], each byte two
  // float4_e2m1, the low half first, and scales with shape [..., rows, groups],
  // bytes that are exponents of two with a bias of 127. Becomes bfloat16
  // [..., groups * 32, rows], transposed, as transformers makes it.
  static absl::StatusOr<std::unique_ptr<const LensedTensor>> Mxfp4(
      FileSystem& fs, const LensTable& codes, const LensTable& scales);

  // The weight plus `factor` times the product of B and A, as peft merges them.
  // Sums go over the rank in order, and each step rounds once.
  static absl::StatusOr<std::unique_ptr<const LensedTensor>> Adapter(
      FileSystem& fs, const LensTable& weight, const LensTable& a,
      const LensTable& b, double factor);

  // The sum of w_n x_n divided by the sum W_n of the weights: m_1 is the first,
  // and m_n is m_(n-1) + (x_n - m_(n-1)) / (W_n / w_n). With equal weights W_n
  // / w_n is n, and these are the steps of torch.optim.swa_utils.AveragedModel
  // on a CPU for float32. They are in float32 for float16 and bfloat16 too, and
  // in float64 for float64; the result is rounded once. Only for these four
  // types, and at least one weight, of which all are finite and from 0, is
  // above 0. The first table has the values.
  static absl::StatusOr<std::unique_ptr<const LensedTensor>> Mean(
      FileSystem& fs, std::vector<LensTable> tables,
      const std::vector<double>& weights);

  // The tensor rescaled by `rescaled`, except that its `source` is ignored.
  // Refuses float64, because the arithmetic is float32's.
  static absl::StatusOr<std::unique_ptr<const LensedTensor>> Rescaled(
      FileSystem& fs, const LensTable& values, const RescaledSource& rescaled);

  // The inverse of Float8Blocks, for a floating-point tensor with rows and
  // columns: float8_e4m3fn codes with the same shape, and float32 scales. A
  // block's greatest magnitude becomes 448, and the scale is 1 / (1 / magnitude
  // * 448), in float32, or 1 if it is 0: the arithmetic of transformers'
  // Fp8Quantize. `values` may be mapped.
  struct Encoded {
    std::unique_ptr<const LensedTensor> codes;
    std::unique_ptr<const LensedTensor> scales;
  };
  static absl::StatusOr<Encoded> EncodedFloat8(FileSystem& fs,
                                               const LensTable& values);

  LensedTensor(const LensedTensor&) = delete;
  LensedTensor& operator=(const LensedTensor&) = delete;

  // Has type and shape, but neither boxes nor locations. Valid as long as this.
  const TensorEntry& entry() const { return entry_; }

  Kind kind() const { return kind_; }
  FileSystem& fs() const { return fs_; }
  // The shape of the computed tensor: that of entry(), but with the last two
  // dimensions in the other order if is_transposed().
  const Dims& shape() const { return shape_; }
  bool is_transposed() const { return is_transposed_; }
  // The elements that are put in place first. They have shape(), except that
  // each MXFP4 byte holds two elements; see CodesAsBytes.
  const TensorEntry& values() const { return *values_; }
  bool has_two_a_byte() const { return has_two_a_byte_; }
  const std::vector<LensTable>& tables() const { return tables_; }
  // kScales and encoded tensors: how many elements share one scale, along each
  // dimension.
  const Dims& block() const { return block_; }
  double factor() const { return factor_; }  // kAdapter
  // kMean: W_n / w_n for each table; 0 where the weight is 0.
  const std::vector<double>& divisors() const { return divisors_; }
  const RescaledSource& rescaled() const { return rescaled_; }  // kRescale
  bool is_encoded() const {
    return kind_ == Kind::kEncodedCodes || kind_ == Kind::kEncodedScales;
  }

  // MXFP4: the codes as a tensor with shape [..., groups * 16], once they are
  // located. Unimplemented if a chunk cuts groups, or is not row-major.
  absl::StatusOr<std::unique_ptr<const TensorEntry>> CodesAsBytes() const;

 private:
  LensedTensor(Kind kind, FileSystem& fs, const LensTable& values, DType dtype,
               Dims shape, std::vector<LensTable> tables);

  const Kind kind_;
  FileSystem& fs_;
  const std::string name_;
  const TensorEntry* const values_;
  const std::vector<LensTable> tables_;
  const Dims shape_;
  TensorEntry entry_;
  bool has_two_a_byte_ = false;
  bool is_transposed_ = false;
  Dims block_;
  double factor_ = 1;
  std::vector<double> divisors_;
  RescaledSource rescaled_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_LENSED_TENSOR_H_
