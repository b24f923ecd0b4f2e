// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/entry_messages.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "proto/messages/field_checks.h"
#include "proto/messages/layout_messages.h"
#include "proto/utf8.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

// Checks that a tensor can have these dimensions.
absl::StatusOr<Dims> DimsFrom(
    const google::protobuf::RepeatedField<int64_t>& numbers,
    const std::string& name) {
  Dims dims;
  for (int64_t number : numbers) {
    if (number < 0 || dims.size() >= kMaxDims) {
      return absl::DataLossError(absl::StrCat(
          name, ": the server sent the impossible dimension ", number));
    }
    dims.push_back(number);
  }
  return dims;
}

}  // namespace

void TensorToProto(const CheckpointEntry& entry,
                   absl::Span<const std::string> file_names,
                   v1::Tensor& proto) {
  const TensorEntry& tensor = *entry.tensor();
  proto.set_name(ToUtf8(entry.fqn));
  proto.set_dtype(std::string(TorchName(tensor.dtype)));
  proto.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  proto.set_num_bytes(tensor.num_bytes());
  proto.set_num_chunks(static_cast<uint32_t>(tensor.boxes.size()));
  if (file_names.empty()) return;
  for (size_t c = 0; c < tensor.boxes.size(); ++c) {
    const StorageInfo& item = tensor.locations[c].item;
    v1::Chunk& chunk = *proto.add_chunks();
    BoxToProto(tensor.boxes[c], *chunk.mutable_box());
    chunk.set_file(ToUtf8(file_names[item.file]));
    chunk.set_offset(item.offset);
    chunk.set_length(item.length);
  }
}

void ObjectToProto(const CheckpointEntry& entry, bool with_text,
                   v1::Object& proto) {
  proto.set_name(ToUtf8(entry.fqn));
  if (!with_text) return;
  const ObjectEntry& object = *entry.object();
  if (object.located) {
    proto.set_text(ToUtf8(ToString(object, messages::kMaxTextBytes)));
  }
}

absl::StatusOr<TensorEntry> TensorFromProto(
    const v1::Tensor& proto,
    absl::FunctionRef<uint32_t(const std::string& name)> file_number) {
  TensorEntry tensor;
  DCP_ASSIGN_OR_RETURN(tensor.dtype, ParseDType(proto.dtype()));
  DCP_ASSIGN_OR_RETURN(tensor.shape, DimsFrom(proto.shape(), proto.name()));
  for (const v1::Chunk& chunk : proto.chunks()) {
    Box& box = tensor.boxes.emplace_back();
    DCP_ASSIGN_OR_RETURN(box.offsets,
                         DimsFrom(chunk.box().offsets(), proto.name()));
    DCP_ASSIGN_OR_RETURN(box.sizes,
                         DimsFrom(chunk.box().sizes(), proto.name()));
    if (box.offsets.size() != tensor.shape.size() ||
        box.sizes.size() != tensor.shape.size()) {
      return absl::DataLossError(absl::StrCat(
          proto.name(), ": a chunk has a different number of dimensions"));
    }
    ChunkLocation& location = tensor.locations.emplace_back();
    location.item.file = file_number(chunk.file());
    location.item.offset = chunk.offset();
    location.item.length = chunk.length();
  }
  return tensor;
}

}  // namespace dcp
