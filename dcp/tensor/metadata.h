// SPDX-License-Identifier: Apache-2.0
// The contents of a checkpoint's index, whatever the format: names, shapes, and
// the place of each chunk. The terms are those of
// torch.distributed.checkpoint.metadata; storage information, which DCP keeps
// in a second table, is stored with the chunk. Plain data.
#ifndef DCP_TENSOR_METADATA_H_
#define DCP_TENSOR_METADATA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// An item's byte range: `file` is an index into Metadata::files.
struct StorageInfo {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;

  friend bool operator==(const StorageInfo&, const StorageInfo&) = default;
};

struct ChunkStorageMetadata {
  Box box;
  StorageInfo storage;
};

struct TensorStorageMetadata {
  DType dtype = DType::kFloat32;
  Dims size;  // global shape
  std::vector<ChunkStorageMetadata> chunks;
  // The tensor's own shape, if Megatron-core stores it in another shape, as
  // blocks with all elements in one dimension.
  std::optional<Dims> reformulated_from = std::nullopt;
};

// A pickled Python object.
struct BytesStorageMetadata {
  StorageInfo storage;
};

// One step into a nested state dict: a key, or an index into a list.
using PathElement = std::variant<std::string, int64_t>;
using StatePath = absl::InlinedVector<PathElement, 2>;

struct MetadataEntry {
  std::string fqn;  // unique within a Metadata
  // Where the value was in the nested state dict; empty when not recorded.
  StatePath path;
  std::variant<TensorStorageMetadata, BytesStorageMetadata> value;
};

struct Metadata {
  std::vector<std::string> files;  // relative to the checkpoint's directory
  std::vector<MetadataEntry> entries;
  // False for a checkpoint saved without flattening (planner_data None).
  bool has_planner_data = true;
  std::string save_id;  // empty when absent
  std::string version;  // empty when absent
};

}  // namespace dcp

#endif  // DCP_TENSOR_METADATA_H_
