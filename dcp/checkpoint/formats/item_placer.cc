// SPDX-License-Identifier: Apache-2.0
// FileSystemWriter(serialization_format=SAFETENSORS) writes no archives: one
// safetensors file per rank, and an index that wrongly places all items at
// offset 0. Such an item is found by name in the file's header.
//
// Tested by tests/dcp/checkpoint/formats/item_locator_test.cc.
#include "dcp/checkpoint/formats/item_placer.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/formats/item_part.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/pickle/inert_value.h"
#include "dcp/format/torch/value_copy.h"

namespace dcp {

absl::Status ItemPlacer::PlaceObject(
    const ItemChunk& item, const absl::StatusOr<TorchArchive>& archive) {
  DCP_ASSIGN_OR_RETURN(ObjectEntry object,
                       MakeObjectEntry(item.storage, archive));
  object.item = item.storage;
  object.located = true;
  parts_.entries[item.entry].value = std::move(object);
  return absl::OkStatus();
}

absl::StatusOr<ObjectEntry> ItemPlacer::MakeObjectEntry(
    const StorageInfo& storage, const absl::StatusOr<TorchArchive>& archive) {
  if (absl::IsUnimplemented(archive.status())) {
    ObjectEntry unreadable;
    unreadable.unreadable = archive.status();
    return unreadable;
  }
  DCP_RETURN_IF_ERROR(archive.status());
  if (absl::Status inert = CheckInert(archive->root); !inert.ok()) {
    ObjectEntry unreadable =
        UnreadableObject(*archive, archive->root, storage.file, storage.offset,
                         std::move(inert));
    unreadable.value = Value();  // belongs to the archive, which is destroyed
    return unreadable;
  }
  absl::MutexLock lock(&shared_.mutex);
  return ObjectInArchive(*archive, CopyValue(parts_.arena, archive->root),
                         storage.file, storage.offset);
}

absl::Status ItemPlacer::PlaceTensor(Item item, const TorchArchive& archive) {
  DCP_RETURN_IF_ERROR(CheckHoldsTensor(archive));
  DCP_ASSIGN_OR_RETURN(
      const TensorEntry stored,
      TensorInArchive(archive, archive.root, item[0].storage.file,
                      item[0].storage.offset));
  ChunkLocation location = stored.locations[0];
  location.item = item[0].storage;
  return Place(item, "item", stored.dtype, stored.shape, location);
}

// Gives each chunk in an item a part of the tensor, which is at `location`
// and in `what`.
absl::Status ItemPlacer::Place(Item item, absl::string_view what, DType dtype,
                               const Dims& shape,
                               const ChunkLocation& location) {
  for (const ItemChunk& chunk : item) {
    auto& tensor = std::get<TensorEntry>(parts_.entries[chunk.entry].value);
    const Dims& sizes = tensor.boxes[chunk.chunk].sizes;
    const ItemPart* const part =
        tensor.parts.empty() ? nullptr : &tensor.parts[chunk.chunk];
    const Dims& want = part != nullptr ? part->shape : sizes;
    if (dtype != tensor.dtype || shape != want) {
      return absl::DataLossError(
          absl::StrCat("the ", what, " holds ", TorchName(dtype), " ",
                       ShapeToString(shape), ", but the index says ",
                       TorchName(tensor.dtype), " ", ShapeToString(want)));
    }
    ChunkLocation& placed = tensor.locations[chunk.chunk];
    placed = location;
    if (part != nullptr) {
      NarrowToPart(*part, sizes, ElementSize(dtype), placed);
    }
  }
  return absl::OkStatus();
}

absl::Status ItemPlacer::PlaceByName(Item item) {
  const StorageInfo& storage = item[0].storage;
  DCP_ASSIGN_OR_RETURN(const NamedTensors* tensors,
                       ReadNamedTensors(storage.file));
  const auto it = tensors->find(parts_.entries[item[0].entry].fqn);
  if (it == tensors->end()) {
    return absl::DataLossError(
        "the item is neither a torch.save archive nor named in a safetensors "
        "header");
  }
  const SafetensorsTensor& stored = it->second;
  ChunkLocation location;
  location.located = true;
  location.payload_offset = stored.begin;
  location.item = {.file = storage.file,
                   .offset = stored.begin,
                   .length = stored.end - stored.begin};
  return Place(item, "safetensors file", stored.dtype, stored.shape, location);
}

absl::StatusOr<const ItemPlacer::NamedTensors*> ItemPlacer::ReadNamedTensors(
    uint32_t file) {
  std::unique_ptr<NamedTensors>& known = named_tensors_[file];
  if (known != nullptr) return known.get();
  DCP_ASSIGN_OR_RETURN(const File opened, parts_.files->Get(file));
  const uint64_t start = std::min(shared_.object_ends[file], opened.size);
  FileReader reader(fs_, opened, start, opened.size - start);
  absl::StatusOr<SafetensorsHeader> header =
      ReadSafetensorsHeader(opened.size - start, reader.read_at());
  // Bytes that are not a header, read as a length, exceed the limit.
  const bool is_other = IsAboutBytes(header.status()) ||
                        absl::IsResourceExhausted(header.status());
  if (!header.ok() && !is_other) return header.status();
  if (!header.ok()) {
    return absl::DataLossError(absl::StrCat(
        "this is not a torch.save archive, and read as safetensors: ",
        header.status().message()));
  }
  auto tensors = std::make_unique<NamedTensors>();
  for (SafetensorsTensor& tensor : header->tensors) {
    tensor.begin += start + header->data_offset;
    tensor.end += start + header->data_offset;
    std::string name = tensor.name;
    tensors->emplace(std::move(name), std::move(tensor));
  }
  known = std::move(tensors);
  return known.get();
}

}  // namespace dcp
