// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/torchsnapshot/stored_fields.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

constexpr absl::string_view kRaw = "buffer_protocol";
constexpr absl::string_view kTorchSave = "torch_save";
constexpr absl::string_view kQuantized[] = {"per_tensor_qtensor",
                                            "per_channel_qtensor"};

}  // namespace

bool StoredFields::Has(absl::string_view field) {
  return field == "location" || field == "serializer" || field == "dtype" ||
         field == "shape" || field == "byte_range";
}

absl::Status StoredFields::Take(absl::string_view field,
                                const JsonEvent& event) {
  if (field == "location") return TakeJsonText(event, field, location_);
  if (field == "serializer") return TakeJsonText(event, field, serializer_);
  if (field == "dtype") return TakeJsonText(event, field, dtype_);
  if (field == "shape") return shape_.Take(event, field);
  if (event.kind == JsonEvent::Kind::kNull) return absl::OkStatus();
  return range_.Take(event, field);
}

absl::StatusOr<SnapshotRange> StoredFields::Range(uint32_t file) const {
  SnapshotRange range{.file = file};
  if (!range_.begun()) return range;
  const ByteRange& ends = range_.values();
  if (ends.size() != 2 || ends[0] > ends[1]) {
    return absl::DataLossError(absl::StrCat("byte_range ", ShapeToString(ends),
                                            " is not a begin and an end"));
  }
  range.is_whole = false;
  range.begin = static_cast<uint64_t>(ends[0]);
  range.end = static_cast<uint64_t>(ends[1]);
  return range;
}

absl::Status StoredFields::CheckTorchSave() const {
  if (serializer_ == kTorchSave) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "serializer '", ShortJson(serializer_), "' is not supported"));
}

absl::StatusOr<SnapshotRange> StoredFields::Object(uint32_t file) const {
  DCP_RETURN_IF_ERROR(CheckTorchSave());
  return Range(file);
}

absl::StatusOr<SnapshotTensor> StoredFields::TensorType() const {
  const std::optional<DType> dtype =
      DTypeFromTorchName(absl::StripPrefix(dtype_, "torch."));
  if (!dtype.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat("dtype '", ShortJson(dtype_), "' is not supported"));
  }
  if (!shape_.begun()) return absl::DataLossError("the tensor has no shape");
  SnapshotTensor tensor;
  tensor.dtype = *dtype;
  tensor.shape = shape_.values();
  const std::optional<int64_t> volume = CheckedVolume(tensor.shape);
  if (!volume.has_value() ||
      !CheckedMul(static_cast<uint64_t>(*volume), ElementSize(*dtype))
           .has_value()) {
    return absl::DataLossError(absl::StrCat(
        "the shape ", ShapeToString(tensor.shape), " exceeds 64 bits"));
  }
  return tensor;
}

absl::StatusOr<SnapshotTensor> StoredFields::Tensor(uint32_t file) const {
  const bool is_quantized =
      std::find(std::begin(kQuantized), std::end(kQuantized), serializer_) !=
      std::end(kQuantized);
  SnapshotTensor tensor;
  if (is_quantized) {
    tensor.form = SnapshotTensor::Form::kQuantized;
  } else {
    DCP_ASSIGN_OR_RETURN(tensor, TensorType());
    if (serializer_ != kRaw) {
      DCP_RETURN_IF_ERROR(CheckTorchSave());
      tensor.form = SnapshotTensor::Form::kTorchSave;
    }
  }
  DCP_ASSIGN_OR_RETURN(tensor.range, Range(file));
  if (tensor.form != SnapshotTensor::Form::kRaw || tensor.range.is_whole) {
    return tensor;
  }
  const uint64_t num_bytes =
      static_cast<uint64_t>(Volume(tensor.shape)) * ElementSize(tensor.dtype);
  if (tensor.range.end - tensor.range.begin == num_bytes) return tensor;
  return absl::DataLossError(
      absl::StrCat("byte_range has ", tensor.range.end - tensor.range.begin,
                   " bytes, but ", TorchName(tensor.dtype), " ",
                   ShapeToString(tensor.shape), " has ", num_bytes));
}

absl::Status TakeJsonText(const JsonEvent& event, absl::string_view field,
                          std::string& text) {
  if (event.kind != JsonEvent::Kind::kString) return MisplacedJson(field);
  text = std::string(event.text);
  return absl::OkStatus();
}

}  // namespace dcp
