#include "dcp/checkpoint/torch_opener.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/file_reader.h"
#include "dcp/format/inert_value.h"
#include "dcp/format/state_path.h"
#include "dcp/format/torch_tensor.h"
#include "dcp/format/value_copy.h"

namespace dcp {
namespace {

ObjectEntry UnreadableObject(const Value& value, absl::Status why) {
  ObjectEntry object;
  object.located = true;
  object.value = value;
  object.unreadable = std::move(why);
  return object;
}

absl::StatusOr<CheckpointEntry> MakeEntry(const TorchArchive& archive,
                                          FlatValue& flat) {
  CheckpointEntry entry{.fqn = std::move(flat.fqn),
                        .path = std::move(flat.path),
                        .value = ObjectEntry()};
  const bool look = archive.has_unknown_globals || !IsTensor(flat.value);
  if (absl::Status status = look ? CheckInert(flat.value) : absl::OkStatus();
      !status.ok()) {
    entry.value = UnreadableObject(flat.value, std::move(status));
  } else if (IsTensor(flat.value)) {
    absl::StatusOr<TensorEntry> tensor =
        TensorInArchive(archive, flat.value, 0, 0);
    if (absl::IsUnimplemented(tensor.status())) {
      entry.value = UnreadableObject(flat.value, tensor.status());
      return entry;
    }
    if (!tensor.ok()) return Annotate(tensor.status(), entry.fqn);
    entry.value = *std::move(tensor);
  } else {
    absl::StatusOr<ObjectEntry> object =
        ObjectInArchive(archive, flat.value, 0, 0);
    if (!object.ok()) return Annotate(object.status(), entry.fqn);
    entry.value = *std::move(object);
  }
  return entry;
}

ChunkLocation::Record RecordOf(const TorchArchive::Storage& storage,
                               uint64_t start) {
  if (storage.crc == 0) return {};
  return {.offset = start + storage.payload_offset,
          .length = storage.size,
          .crc = storage.crc};
}

// What is no state dict: why, if it is something that people save instead.
absl::Status CheckRoot(const Value& root) {
  return IsMapping(root) || IsTensor(root) ? absl::OkStatus()
                                           : CheckInert(root);
}

}  // namespace

absl::StatusOr<TensorEntry> TensorInArchive(const TorchArchive& archive,
                                            const Value& value, uint32_t file,
                                            uint64_t start) {
  DCP_ASSIGN_OR_RETURN(TorchTensor tensor, ParseTensor(value));
  DCP_ASSIGN_OR_RETURN(const uint64_t offset, archive.PayloadOffset(tensor));
  TensorEntry entry;
  entry.dtype = tensor.dtype;
  entry.shape = std::move(tensor.sizes);
  entry.requires_grad = tensor.requires_grad;
  entry.boxes.push_back(WholeBox(entry.shape));
  ChunkLocation& location = entry.locations.emplace_back();
  location.located = true;
  location.item.file = file;
  location.item.offset = location.payload_offset = start + offset;
  location.item.length = entry.num_bytes();
  if (tensor.strides != RowMajorStrides(entry.shape)) {
    location.strides = std::move(tensor.strides);
  }
  location.swap_bytes = archive.big_endian && ComponentSize(entry.dtype) > 1;
  location.conj = tensor.conj;
  location.neg = tensor.neg;
  location.record = RecordOf(archive.storages.at(tensor.storage_key), start);
  return entry;
}

absl::StatusOr<TensorEntry> StorageInArchive(const TorchArchive& archive,
                                             const Value& value, uint32_t file,
                                             uint64_t start) {
  DCP_ASSIGN_OR_RETURN(const TorchStorage storage, ParseStorage(value));
  const auto it = archive.storages.find(storage.key);
  if (it == archive.storages.end()) {
    return absl::DataLossError(
        absl::StrCat("storage ", storage.key, " is not there"));
  }
  if (archive.big_endian && !storage.dtype.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "storage ", storage.key, " of an unknown class is big-endian"));
  }
  TensorEntry entry;
  entry.dtype = DType::kUInt8;
  ChunkLocation& location = entry.locations.emplace_back();
  // Elements matter only where they have to be turned around.
  if (archive.big_endian && ComponentSize(*storage.dtype) > 1 &&
      it->second.size % ElementSize(*storage.dtype) == 0) {
    entry.dtype = *storage.dtype;
    location.swap_bytes = true;
  }
  entry.shape.push_back(
      static_cast<int64_t>(it->second.size / ElementSize(entry.dtype)));
  entry.boxes.push_back(WholeBox(entry.shape));
  location.located = true;
  location.item.file = file;
  location.item.offset = location.payload_offset =
      start + it->second.payload_offset;
  location.item.length = it->second.size;
  location.record = RecordOf(it->second, start);
  return entry;
}

absl::StatusOr<ObjectEntry> ObjectInArchive(const TorchArchive& archive,
                                            const Value& value, uint32_t file,
                                            uint64_t start) {
  ObjectEntry entry;
  entry.located = true;
  entry.has_crc = archive.pickle_has_crc;
  entry.value = value;
  absl::Status status;
  ForEachStored(value, [&](const Value& inner) {
    absl::StatusOr<TensorEntry> tensor =
        IsTensor(inner) ? TensorInArchive(archive, inner, file, start)
                        : StorageInArchive(archive, inner, file, start);
    if (!tensor.ok()) {
      status.Update(tensor.status());
      return;
    }
    entry.tensors.emplace(inner.identity(), *std::move(tensor));
  });
  if (absl::IsUnimplemented(status)) {
    entry.tensors.clear();
    entry.unreadable = std::move(status);
    return entry;
  }
  if (!status.ok()) return status;
  return entry;
}

absl::StatusOr<CheckpointParts> OpenTorchFile(FileSystem& fs,
                                              absl::string_view path,
                                              const OpenOptions& options) {
  CheckpointParts parts;
  parts.format = Format::kTorch;
  parts.files = std::make_unique<SourceFiles>(
      fs, ParentDirectory(path),
      std::vector<std::string>{std::string(BaseName(path))}, options.direct,
      /*follow_symlinks=*/true);
  DCP_ASSIGN_OR_RETURN(const File file, parts.files->Get(0));
  FileReader reader(fs, file, 0, file.size);
  absl::StatusOr<TorchArchive> read = ReadTorchArchive(
      file.size, /*allow_legacy=*/true, reader.read_at(), options.check_crcs);
  if (!read.ok()) return Annotate(read.status(), path);
  parts.archive = std::make_unique<TorchArchive>(*std::move(read));
  const TorchArchive* archive = parts.archive.get();
  parts.properties.emplace_back("container",
                                archive->legacy ? "legacy" : "zip");
  DCP_RETURN_IF_ERROR(Annotate(CheckRoot(archive->root), path));
  absl::StatusOr<std::vector<FlatValue>> leaves = Flatten(archive->root);
  if (!leaves.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", leaves.status().message()));
  }
  parts.entries.reserve(leaves->size());
  for (FlatValue& leaf : *leaves) {
    absl::StatusOr<CheckpointEntry> entry = MakeEntry(*archive, leaf);
    if (!entry.ok()) return Annotate(entry.status(), path);
    parts.entries.push_back(*std::move(entry));
  }
  return parts;
}

}  // namespace dcp
