// SPDX-License-Identifier: Apache-2.0
// Checks shapes and types, and makes lensed tensors.
// Tested by tests/tools/dcp_convert/options/lens_options_test.cc.
#include "dcp/checkpoint/lens/lensed_tensor.h"

#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/quantization.h"
#include "dcp/tensor/float_codec.h"

namespace dcp {
namespace {

constexpr int64_t kMxfp4Group = 32;  // elements
constexpr int64_t kMxfp4GroupBytes = 16;

std::string Describe(const LensTable& table) {
  return absl::StrCat(table.name, " (", TorchName(table.tensor->dtype), " ",
                      ShapeToString(table.tensor->shape), ")");
}

absl::Status MismatchError(const LensTable& a, const LensTable& b,
                           absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(a), " and ", Describe(b), ": ", why));
}

// Blocks with 128 rows and columns, and size 1 in all dimensions before them.
Dims Float8BlockShape(const Dims& shape) {
  Dims block(shape.size() - 2, 1);
  const std::vector<int64_t> last = Float8Block();
  block.insert(block.end(), last.begin(), last.end());
  return block;
}

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The shape of a table with one scale per block.
Dims ScalesShape(const Dims& shape, const Dims& block) {
  Dims scales;
  for (size_t i = 0; i < shape.size(); ++i) {
    scales.push_back(CeilDiv(shape[i], block[i]));
  }
  return scales;
}

}  // namespace

LensedTensor::LensedTensor(Kind kind, FileSystem& fs, const LensTable& values,
                           DType dtype, Dims shape,
                           std::vector<LensTable> tables)
    : kind_(kind),
      fs_(fs),
      name_(values.name),
      values_(values.tensor),
      tables_(std::move(tables)),
      shape_(std::move(shape)) {
  entry_.dtype = dtype;
  entry_.shape = shape_;
  entry_.lensed = this;
}

absl::StatusOr<std::unique_ptr<const LensedTensor>> LensedTensor::Float8Blocks(
    FileSystem& fs, const LensTable& codes, const LensTable& scales) {
  const Dims& shape = codes.tensor->shape;
  if (codes.tensor->dtype != DType::kFloat8E4M3FN || shape.size() < 2) {
    return MismatchError(
        codes, scales,
        "the first must be torch.float8_e4m3fn and have rows and columns");
  }
  const Quantization* const known = codes.tensor->quantization;
  if (known != nullptr && !known->block.empty()) {
    return MismatchError(
        codes, scales,
        absl::StrCat("config.json says that the blocks are ",
                     absl::StrJoin(known->block, " x "),
                     ", and only those of 128 x 128 can be decoded"));
  }
  Dims block = Float8BlockShape(shape);
  const Dims wanted = ScalesShape(shape, block);
  if (!HasFloatCodec(scales.tensor->dtype) || scales.tensor->shape != wanted) {
    return MismatchError(
        codes, scales,
        absl::StrCat("blocks of 128 x 128 need floating-point scales of shape ",
                     ShapeToString(wanted)));
  }
  auto lensed = absl::WrapUnique(new LensedTensor(
      Kind::kScales, fs, codes, DType::kBFloat16, shape, {scales}));
  lensed->block_ = std::move(block);
  return lensed;
}

absl::StatusOr<std::unique_ptr<const LensedTensor>> LensedTensor::Mxfp4(
    FileSystem& fs, const LensTable& codes, const LensTable& scales) {
  const Dims& bytes = codes.tensor->shape;
  if (codes.tensor->dtype != DType::kUInt8 || bytes.size() < 3 ||
      bytes.back() != kMxfp4GroupBytes ||
      scales.tensor->dtype != DType::kUInt8 ||
      scales.tensor->shape != Dims(bytes.begin(), bytes.end() - 1)) {
    return MismatchError(codes, scales,
                         "MXFP4 needs torch.uint8 [..., rows, groups, 16] and "
                         "torch.uint8 [..., rows, groups]");
  }
  Dims shape(bytes.begin(), bytes.end() - 1);
  shape.back() *= kMxfp4Group;
  Dims block(shape.size(), 1);
  block.back() = kMxfp4Group;
  auto lensed = absl::WrapUnique(new LensedTensor(
      Kind::kScales, fs, codes, DType::kBFloat16, std::move(shape), {scales}));
  lensed->block_ = std::move(block);
  lensed->has_two_a_byte_ = true;
  lensed->is_transposed_ = true;
  Dims& outer = lensed->entry_.shape;
  std::swap(outer[outer.size() - 2], outer[outer.size() - 1]);
  return lensed;
}

absl::StatusOr<std::unique_ptr<const LensedTensor>> LensedTensor::Adapter(
    FileSystem& fs, const LensTable& weight, const LensTable& a,
    const LensTable& b, double factor) {
  const TensorEntry& w = *weight.tensor;
  DCP_RETURN_IF_ERROR(
      CheckNotQuantized(weight.name, w, "changed by an adapter"));
  if (w.shape.size() != 2 || !HasFloatCodec(w.dtype)) {
    return MismatchError(weight, a, "an adapter needs a floating-point matrix");
  }
  for (const LensTable* table : {&a, &b}) {
    DCP_RETURN_IF_ERROR(
        CheckNotQuantized(table->name, *table->tensor, "multiplied"));
    const Dims& shape = table->tensor->shape;
    const size_t whole = table == &a ? 1 : 0;
    if (shape.size() != 2 || shape[whole] != w.shape[whole] ||
        !HasFloatCodec(table->tensor->dtype)) {
      return MismatchError(weight, *table,
                           "A must be [rank, columns] and B [rows, rank]");
    }
  }
  if (a.tensor->shape[0] != b.tensor->shape[1]) {
    return MismatchError(a, b, "their ranks differ");
  }
  auto lensed = absl::WrapUnique(
      new LensedTensor(Kind::kAdapter, fs, weight, w.dtype, w.shape, {a, b}));
  lensed->factor_ = factor;
  return lensed;
}

absl::StatusOr<std::unique_ptr<const LensedTensor>> LensedTensor::Mean(
    FileSystem& fs, std::vector<LensTable> tables,
    const std::vector<double>& weights) {
  DCP_CHECK(tables.size() == weights.size());
  const LensTable first = tables.front();
  if (!HasFloatCodec(first.tensor->dtype) ||
      ElementSize(first.tensor->dtype) == 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(first),
        " has no mean; only float64, float32, float16 and bfloat16 have one: "
        "cast it first, or leave it out of these checkpoints in runs of their "
        "own"));
  }
  for (const LensTable& other : tables) {
    if (other.tensor->dtype != first.tensor->dtype ||
        other.tensor->shape != first.tensor->shape) {
      return MismatchError(first, other,
                           "a mean needs tensors of one type and shape");
    }
  }
  auto lensed = absl::WrapUnique(
      new LensedTensor(Kind::kMean, fs, first, first.tensor->dtype,
                       first.tensor->shape, std::move(tables)));
  double sum = 0;
  for (const double weight : weights) {
    sum += weight;
    lensed->divisors_.push_back(weight == 0 ? 0 : sum / weight);
  }
  return lensed;
}

absl::StatusOr<std::unique_ptr<const LensedTensor>> LensedTensor::Rescaled(
    FileSystem& fs, const LensTable& values, const RescaledSource& rescaled) {
  const TensorEntry& tensor = *values.tensor;
  DCP_RETURN_IF_ERROR(CheckNotQuantized(values.name, tensor, "rescaled"));
  if (!HasFloatCodec(tensor.dtype) || ElementSize(tensor.dtype) == 1 ||
      tensor.dtype == DType::kFloat64) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(values),
                     " cannot be scaled or added to; only float32, "
                     "float16 and bfloat16 can"));
  }
  if (tensor.lensed != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(values),
        " is computed already when a rule scales it or adds to it; let one run "
        "do the first, and another the second"));
  }
  auto lensed = absl::WrapUnique(new LensedTensor(
      Kind::kRescale, fs, values, tensor.dtype, tensor.shape, {}));
  lensed->rescaled_ = rescaled;
  return lensed;
}

absl::StatusOr<LensedTensor::Encoded> LensedTensor::EncodedFloat8(
    FileSystem& fs, const LensTable& values) {
  const TensorEntry& tensor = *values.tensor;
  DCP_RETURN_IF_ERROR(CheckNotQuantized(values.name, tensor, "encoded"));
  if (!HasFloatCodec(tensor.dtype) || ElementSize(tensor.dtype) == 1 ||
      tensor.shape.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(values),
                     " cannot become float8 in blocks; that takes rows and "
                     "columns of float64, float32, float16 or bfloat16"));
  }
  const Dims block = Float8BlockShape(tensor.shape);
  Encoded encoded;
  for (const bool are_codes : {true, false}) {
    auto lensed = absl::WrapUnique(new LensedTensor(
        are_codes ? Kind::kEncodedCodes : Kind::kEncodedScales, fs, values,
        are_codes ? DType::kFloat8E4M3FN : DType::kFloat32,
        are_codes ? tensor.shape : ScalesShape(tensor.shape, block), {values}));
    lensed->block_ = block;
    (are_codes ? encoded.codes : encoded.scales) = std::move(lensed);
  }
  return encoded;
}

absl::StatusOr<std::unique_ptr<const TensorEntry>> LensedTensor::CodesAsBytes()
    const {
  auto bytes = std::make_unique<TensorEntry>(*values_);
  const auto join = [](Dims& dims, int64_t last) {
    dims.pop_back();
    dims.back() *= last;
  };
  join(bytes->shape, kMxfp4GroupBytes);
  for (size_t i = 0; i < bytes->boxes.size(); ++i) {
    Box& box = bytes->boxes[i];
    if (box.sizes.back() != kMxfp4GroupBytes ||
        !bytes->locations[i].strides.empty()) {
      return absl::UnimplementedError(absl::StrCat(
          name_,
          " has a chunk that cuts groups of MXFP4 or is not row-major; "
          "convert the checkpoint to whole tensors first"));
    }
    join(box.sizes, kMxfp4GroupBytes);
    join(box.offsets, kMxfp4GroupBytes);
  }
  return bytes;
}

}  // namespace dcp
