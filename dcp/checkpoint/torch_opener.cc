#include "dcp/checkpoint/torch_opener.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/file_reader.h"
#include "dcp/format/state_path.h"
#include "dcp/format/torch_tensor.h"
#include "dcp/format/value_copy.h"

namespace dcp {
namespace {

absl::StatusOr<CheckpointEntry> MakeEntry(CheckpointParts& parts,
                                          const TorchArchive& archive,
                                          FlatValue& flat) {
  CheckpointEntry entry{.fqn = std::move(flat.fqn),
                        .path = std::move(flat.path),
                        .value = ObjectEntry()};
  if (IsTensor(flat.value)) {
    absl::StatusOr<TensorEntry> tensor =
        TensorInArchive(archive, flat.value, 0, 0);
    if (!tensor.ok()) return Annotate(tensor.status(), entry.fqn);
    entry.value = *std::move(tensor);
  } else {
    absl::StatusOr<ObjectEntry> object =
        ObjectInArchive(parts.arena, archive, flat.value, 0, 0);
    if (!object.ok()) return Annotate(object.status(), entry.fqn);
    entry.value = *std::move(object);
  }
  return entry;
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
  const TorchArchive::Storage& storage =
      archive.storages.at(tensor.storage_key);
  if (storage.crc != 0) {
    location.record = {.offset = start + storage.payload_offset,
                       .length = storage.size,
                       .crc = storage.crc};
  }
  return entry;
}

absl::StatusOr<ObjectEntry> ObjectInArchive(ValueArena& arena,
                                            const TorchArchive& archive,
                                            const Value& value, uint32_t file,
                                            uint64_t start) {
  ObjectEntry entry;
  entry.located = true;
  entry.has_crc = archive.pickle_has_crc;
  entry.value = CopyValue(arena, value);
  absl::Status status;
  ForEachTensor(entry.value, [&](const Value& inner) {
    absl::StatusOr<TensorEntry> tensor =
        TensorInArchive(archive, inner, file, start);
    if (!tensor.ok()) {
      status.Update(tensor.status());
      return;
    }
    entry.tensors.emplace(inner.identity(), *std::move(tensor));
  });
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
  absl::StatusOr<TorchArchive> archive = ReadTorchArchive(
      file.size, /*allow_legacy=*/true, reader.read_at(), options.check_crcs);
  if (!archive.ok()) return Annotate(archive.status(), path);
  parts.properties.emplace_back("container",
                                archive->legacy ? "legacy" : "zip");
  absl::StatusOr<std::vector<FlatValue>> leaves = Flatten(archive->root);
  if (!leaves.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", leaves.status().message()));
  }
  parts.entries.reserve(leaves->size());
  for (FlatValue& leaf : *leaves) {
    absl::StatusOr<CheckpointEntry> entry = MakeEntry(parts, *archive, leaf);
    if (!entry.ok()) return Annotate(entry.status(), path);
    parts.entries.push_back(*std::move(entry));
  }
  return parts;
}

}  // namespace dcp
