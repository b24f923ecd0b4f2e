// SPDX-License-Identifier: Apache-2.0
// MetadataBuilder: collects chunks and objects, from this rank and from others,
// into one Metadata with one entry per name. Pure; thread-compatible.
#ifndef DCP_CHECKPOINT_SAVE_METADATA_BUILDER_H_
#define DCP_CHECKPOINT_SAVE_METADATA_BUILDER_H_

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "dcp/checkpoint/save/save_state.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

class MetadataBuilder {
 public:
  Metadata& metadata() { return metadata_; }
  const Metadata& metadata() const { return metadata_; }

  // `storage` refers to a file by the index in metadata().files.
  void AddChunk(const SaveTensor& tensor, const StorageInfo& storage);
  void AddObject(const SaveObject& object, const StorageInfo& storage);

  // Adds another rank's metadata: files and tensor chunks. If both have an
  // object with the same name, this one's stays. InvalidArgument when a name
  // has another type or shape there.
  absl::Status Merge(Metadata other);

  // InvalidArgument with the tensor's name unless the chunks of each tensor
  // cover it. Chunks with the same box count once.
  absl::Status CheckWhole() const;

 private:
  absl::Status MergeEntry(MetadataEntry entry);

  Metadata metadata_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAVE_METADATA_BUILDER_H_
