// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/save/metadata_builder.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

void MetadataBuilder::AddChunk(const SaveTensor& tensor,
                               const StorageInfo& storage) {
  const auto [it, is_new] =
      by_name_.emplace(tensor.fqn, metadata_.entries.size());
  if (is_new) {
    MetadataEntry entry{.fqn = tensor.fqn, .path = tensor.path, .value = {}};
    entry.value = TensorStorageMetadata{
        .dtype = tensor.dtype, .size = tensor.shape, .chunks = {}};
    metadata_.entries.push_back(std::move(entry));
  }
  std::get<TensorStorageMetadata>(metadata_.entries[it->second].value)
      .chunks.push_back({.box = tensor.box, .storage = storage});
}

void MetadataBuilder::AddObject(const SaveObject& object,
                                const StorageInfo& storage) {
  by_name_.emplace(object.fqn, metadata_.entries.size());
  metadata_.entries.push_back({.fqn = object.fqn,
                               .path = object.path,
                               .value = BytesStorageMetadata{storage}});
}

absl::Status MetadataBuilder::Merge(Metadata other) {
  const auto base = static_cast<uint32_t>(metadata_.files.size());
  for (std::string& file : other.files) {
    metadata_.files.push_back(std::move(file));
  }
  for (MetadataEntry& entry : other.entries) {
    if (auto* tensor = std::get_if<TensorStorageMetadata>(&entry.value)) {
      for (auto& chunk : tensor->chunks) chunk.storage.file += base;
    } else {
      std::get<BytesStorageMetadata>(entry.value).storage.file += base;
    }
    DCP_RETURN_IF_ERROR(MergeEntry(std::move(entry)));
  }
  return absl::OkStatus();
}

absl::Status MetadataBuilder::MergeEntry(MetadataEntry entry) {
  const auto [it, is_new] =
      by_name_.emplace(entry.fqn, metadata_.entries.size());
  if (is_new) {
    metadata_.entries.push_back(std::move(entry));
    return absl::OkStatus();
  }
  MetadataEntry& mine = metadata_.entries[it->second];
  auto* from = std::get_if<TensorStorageMetadata>(&entry.value);
  auto* to = std::get_if<TensorStorageMetadata>(&mine.value);
  if ((from == nullptr) != (to == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        entry.fqn, " is a tensor on one rank and an object on another"));
  }
  if (from == nullptr) return absl::OkStatus();
  if (from->dtype != to->dtype || from->size != to->size) {
    return absl::InvalidArgumentError(absl::StrCat(
        entry.fqn, " is ", TorchName(to->dtype), " ", ShapeToString(to->size),
        " on one rank and ", TorchName(from->dtype), " ",
        ShapeToString(from->size), " on another"));
  }
  std::move(from->chunks.begin(), from->chunks.end(),
            std::back_inserter(to->chunks));
  return absl::OkStatus();
}

absl::Status MetadataBuilder::CheckWhole() const {
  for (const MetadataEntry& entry : metadata_.entries) {
    const auto* tensor = std::get_if<TensorStorageMetadata>(&entry.value);
    if (tensor == nullptr) continue;
    std::vector<Box> boxes;
    absl::flat_hash_set<std::pair<Dims, Dims>> seen;
    for (const auto& chunk : tensor->chunks) {
      if (seen.emplace(chunk.box.offsets, chunk.box.sizes).second) {
        boxes.push_back(chunk.box);
      }
    }
    const absl::Status covered = CheckCoverage(tensor->size, boxes);
    if (!covered.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.fqn, ": ", covered.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace dcp
