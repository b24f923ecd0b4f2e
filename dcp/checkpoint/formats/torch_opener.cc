// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/torch_opener.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/format/pickle/inert_value.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/torch_archive_reader.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/torch/value_copy.h"

namespace dcp {
namespace {

ChunkLocation::Record MakeRecord(const TorchArchive::Storage& storage,
                                 uint64_t start) {
  if (storage.crc == 0) return {};
  return {.offset = start + storage.payload_offset,
          .length = storage.size,
          .crc = storage.crc};
}

// Refuses a root that is not a state dict; names the reason for things that
// people save instead.
absl::Status CheckRoot(const Value& root) {
  return IsMapping(root) || IsTensor(root) ? absl::OkStatus()
                                           : CheckInert(root);
}

// Adds the contents of file `file` in `parts`.
absl::Status AddFile(uint32_t file, const std::stop_token& stop,
                     IndexedTensors& indexed, CheckpointParts& parts) {
  const TorchArchive& archive = *parts.archives[file];
  DCP_RETURN_IF_ERROR(CheckRoot(archive.root));
  absl::StatusOr<std::vector<FlatValue>> leaves = Flatten(archive.root);
  if (!leaves.ok()) return absl::DataLossError(leaves.status().message());
  parts.entries.reserve(parts.entries.size() + leaves->size());
  for (FlatValue& leaf : *leaves) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    if (!indexed.Take(leaf.fqn, file)) {
      parts.leaves_out = true;
      continue;
    }
    absl::StatusOr<CheckpointEntry> entry =
        EntryInArchive(archive, leaf.value, file);
    if (!entry.ok()) return Annotate(entry.status(), leaf.fqn);
    entry->fqn = std::move(leaf.fqn);
    entry->path = std::move(leaf.path);
    parts.entries.push_back(*std::move(entry));
  }
  return absl::OkStatus();
}

uint32_t EntryFile(const CheckpointEntry& entry) {
  return entry.object() != nullptr ? entry.object()->item.file
                                   : entry.tensor()->locations[0].item.file;
}

// Replaces entries with the same name in different files by one entry, which
// cannot be read.
void JoinDuplicates(const ModelFiles& model,
                    std::vector<CheckpointEntry>& entries) {
  absl::flat_hash_map<std::string, size_t> firsts;
  size_t num_kept = 0;
  for (CheckpointEntry& entry : entries) {
    const auto [it, is_new] = firsts.emplace(entry.fqn, num_kept);
    CheckpointEntry& first = entries[it->second];
    if (!is_new && EntryFile(first) != EntryFile(entry)) {
      absl::Status twice =
          InTwoFilesError(entry.fqn, model.names[EntryFile(first)],
                          model.names[EntryFile(entry)]);
      if (auto* const tensor = std::get_if<TensorEntry>(&first.value)) {
        tensor->problem = std::move(twice);
      } else {
        std::get<ObjectEntry>(first.value).unreadable = std::move(twice);
      }
      continue;
    }
    if (&entries[num_kept] != &entry) entries[num_kept] = std::move(entry);
    ++num_kept;
  }
  entries.resize(num_kept);
}

}  // namespace

absl::Status ReadArchives(FileSystem& fs, const OpenOptions& options,
                          const std::stop_token& stop,
                          absl::FunctionRef<bool(uint32_t)> may_be_bare,
                          CheckpointParts& parts) {
  parts.archives.resize(parts.files->names().size());
  return parts.files->ForEach(stop, [&](uint32_t i) -> absl::Status {
    DCP_ASSIGN_OR_RETURN(const File file, parts.files->Get(i));
    absl::StatusOr<TorchArchive> archive =
        ReadArchiveInFile(fs, file, 0, file.size, options, stop);
    if (absl::IsDataLoss(archive.status()) && may_be_bare(i)) {
      FileReader reader(fs, file, 0, file.size, stop);
      absl::StatusOr<TorchArchive> pickle =
          ReadBarePickle(file.size, reader.read_at());
      if (pickle.ok()) archive = std::move(pickle);
    }
    if (!archive.ok()) {
      return Annotate(archive.status(), parts.files->FullPath(i));
    }
    parts.archives[i] = std::make_unique<TorchArchive>(*std::move(archive));
    return absl::OkStatus();
  });
}

absl::StatusOr<TorchArchive> ReadArchiveInFile(FileSystem& fs, const File& file,
                                               uint64_t start, uint64_t length,
                                               const OpenOptions& options,
                                               const std::stop_token& stop) {
  FileReader reader(fs, file, start, length, stop);
  return ReadTorchArchive(length, /*allow_legacy=*/true, reader.read_at(),
                          options.check_index);
}

absl::StatusOr<CheckpointEntry> EntryInArchive(const TorchArchive& archive,
                                               const Value& value,
                                               uint32_t file, uint64_t start) {
  CheckpointEntry entry;
  const bool look = archive.has_unknown_globals || !IsTensor(value);
  if (absl::Status status = look ? CheckInert(value) : absl::OkStatus();
      !status.ok()) {
    entry.value =
        UnreadableObject(archive, value, file, start, std::move(status));
    return entry;
  }
  if (!IsTensor(value)) {
    DCP_ASSIGN_OR_RETURN(entry.value,
                         ObjectInArchive(archive, value, file, start));
    return entry;
  }
  absl::StatusOr<TensorEntry> tensor =
      TensorInArchive(archive, value, file, start);
  if (absl::IsUnimplemented(tensor.status())) {
    entry.value =
        UnreadableObject(archive, value, file, start, tensor.status());
    return entry;
  }
  if (!tensor.ok()) return tensor.status();
  entry.value = *std::move(tensor);
  return entry;
}

absl::Status CheckHoldsTensor(const TorchArchive& archive) {
  if (IsTensor(archive.root)) return absl::OkStatus();
  const std::string holds =
      absl::StrCat("the item holds ", ToString(archive.root, 60));
  if (archive.has_unknown_globals) {
    return absl::UnimplementedError(absl::StrCat(
        holds,
        ", which only the program that wrote it can turn into a tensor"));
  }
  return absl::DataLossError(
      absl::StrCat(holds, ", but the index says it is a tensor"));
}

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
  location.record = MakeRecord(archive.storages.at(tensor.storage_key), start);
  return entry;
}

absl::StatusOr<TensorEntry> StorageInArchive(const TorchArchive& archive,
                                             const Value& value, uint32_t file,
                                             uint64_t start) {
  DCP_ASSIGN_OR_RETURN(const TorchStorage storage, ParseStorage(value));
  const auto it = archive.storages.find(storage.key);
  if (it == archive.storages.end()) {
    return absl::DataLossError(
        absl::StrCat("storage ", storage.key, " is missing"));
  }
  if (archive.big_endian && !storage.dtype.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "storage ", storage.key, " is big-endian, and its class is unknown"));
  }
  TensorEntry entry;
  entry.dtype = DType::kUInt8;
  ChunkLocation& location = entry.locations.emplace_back();
  // The element size matters only where bytes must be swapped.
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
  location.record = MakeRecord(it->second, start);
  return entry;
}

absl::StatusOr<ObjectEntry> ObjectInArchive(const TorchArchive& archive,
                                            const Value& value, uint32_t file,
                                            uint64_t start) {
  ObjectEntry entry;
  entry.item.file = file;
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
    return UnreadableObject(archive, value, file, start, std::move(status));
  }
  if (!status.ok()) return status;
  return entry;
}

ObjectEntry UnreadableObject(const TorchArchive& archive, const Value& value,
                             uint32_t file, uint64_t start, absl::Status why) {
  ObjectEntry object;
  object.item.file = file;
  object.located = true;
  object.has_crc = archive.pickle_has_crc;
  object.value = value;
  object.unreadable = std::move(why);
  ForEachStorage(value, [&](const Value& inner) {
    absl::StatusOr<TensorEntry> storage =
        StorageInArchive(archive, inner, file, start);
    if (!storage.ok()) return;  // only the program that wrote it can read it
    object.tensors.emplace(inner.identity(), *std::move(storage));
  });
  return object;
}

absl::StatusOr<CheckpointParts> OpenTorch(FileSystem& fs,
                                          const ModelFiles& model,
                                          const OpenOptions& options,
                                          const std::stop_token& stop) {
  CheckpointParts parts;
  parts.format = Format::kTorch;
  parts.dialect = Dialect::kTorch;
  parts.files = std::make_unique<SourceFiles>(fs, model.directory, model.names,
                                              options.direct,
                                              /*follow_symlinks=*/true);
  DCP_RETURN_IF_ERROR(ReadArchives(
      fs, options, stop, [](uint32_t) { return false; }, parts));
  IndexedTensors indexed(model);
  for (uint32_t i = 0; i < model.names.size(); ++i) {
    DCP_RETURN_IF_ERROR(
        Annotate(AddFile(i, stop, indexed, parts), parts.files->FullPath(i)));
  }
  if (model.names.size() > 1) JoinDuplicates(model, parts.entries);
  const bool any_legacy =
      std::any_of(parts.archives.begin(), parts.archives.end(),
                  [](const auto& archive) { return archive->legacy; });
  parts.properties.emplace_back("container", any_legacy ? "legacy" : "zip");
  if (!indexed.surplus().empty()) {
    parts.losses.push_back(SurplusLoss(indexed.surplus()));
  }
  DCP_RETURN_IF_ERROR(indexed.CheckAll());
  return parts;
}

}  // namespace dcp
