// SPDX-License-Identifier: Apache-2.0

#include "server/reading/dcp_index.h"

#include <algorithm>
#include <utility>

#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/tensor/metadata.h"

namespace dcp::server {
namespace {

// For an entry without names, and for a chunk: the struct, and the opcodes that
// describe it (two tuples with numbers, a location, and their classes from the
// memo).
constexpr uint64_t kIndexBytesPerEntry = sizeof(MetadataEntry) + 512;
constexpr uint64_t kIndexBytesPerChunk = sizeof(ChunkStorageMetadata) + 512;
// A name occurs in the struct, in the path, and twice in the pickle.
constexpr uint64_t kNameCopies = 4;

// DCP does not allow a location without bytes. Other formats have those, for
// tensors without elements and for objects inside a pickle.
StorageInfo DescribePlace(StorageInfo item) {
  item.length = std::max<uint64_t>(item.length, 1);
  return item;
}

TensorStorageMetadata DescribeTensor(const TensorEntry& tensor) {
  TensorStorageMetadata described{
      .dtype = tensor.dtype, .size = tensor.shape, .chunks = {}};
  described.chunks.reserve(tensor.boxes.size());
  for (size_t c = 0; c < tensor.boxes.size(); ++c) {
    described.chunks.push_back(
        {.box = tensor.boxes[c],
         .storage = DescribePlace(tensor.locations[c].item)});
  }
  return described;
}

}  // namespace

std::string EncodeDcpIndex(const Checkpoint& checkpoint) {
  Metadata metadata;
  metadata.files = checkpoint.files().names();
  metadata.has_planner_data = checkpoint.flattened();
  for (const auto& [label, text] : checkpoint.properties()) {
    if (checkpoint.format() == Format::kDcp && label == "save id") {
      metadata.save_id = text;
    }
  }
  metadata.entries.reserve(checkpoint.entries().size());
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    MetadataEntry& described = metadata.entries.emplace_back();
    described.fqn = entry.fqn;
    described.path = entry.path;
    if (described.path.empty() && checkpoint.flattened()) {
      described.path.push_back(PathElement(entry.fqn));
    }
    if (entry.tensor() != nullptr) {
      described.value = DescribeTensor(*entry.tensor());
    } else {
      described.value =
          BytesStorageMetadata{DescribePlace(entry.object()->item)};
    }
  }
  return WriteDcpMetadata(metadata);
}

uint64_t DcpIndexBytes(const Checkpoint& checkpoint) {
  uint64_t num_bytes = 4096;
  for (const std::string& name : checkpoint.files().names()) {
    num_bytes += sizeof(std::string) + 2 * name.size();
  }
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    num_bytes += kIndexBytesPerEntry + kNameCopies * entry.fqn.size();
    if (entry.tensor() != nullptr) {
      num_bytes += entry.tensor()->boxes.size() * kIndexBytesPerChunk;
    }
  }
  return num_bytes;
}

}  // namespace dcp::server
