// SPDX-License-Identifier: Apache-2.0
// SnapshotManifest: the facts in TorchSnapshot's .snapshot_metadata, a JSON
// text that lists every rank's values. Checks everything that the text alone
// can show; the payloads are in other files. Pure; any thread. Source:
// torchsnapshot/{manifest,manifest_ops,flatten,serialization}.py (2024.7.26).
//
//   {"version": "0.1.0", "world_size": 2, "manifest": {
//      "0/model/table": {"type": "ShardedTensor", "shards": [
//         {"offsets": [0, 0], "sizes": [4, 3], "tensor": {
//            "type": "Tensor", "location": "sharded/model/table_0_0",
//            "serializer": "buffer_protocol", "dtype": "torch.float32",
//            "shape": [4, 3], "byte_range": [16, 64]}}]}, ...}}
#ifndef DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_SNAPSHOT_MANIFEST_H_
#define DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_SNAPSHOT_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/torchsnapshot/snapshot_tensor.h"
#include "dcp/format/file/read_at.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

struct SnapshotPiece {
  Box box;                // has the tensor's shape
  SnapshotTensor tensor;  // has the whole's dtype
};

struct SnapshotEntry {
  enum class Kind : uint8_t {
    kTensor,   // tensor
    kChunked,  // a whole tensor in pieces; tensor has only dtype and shape
    // This rank's pieces of a tensor; the shape is known when all ranks' pieces
    // are. tensor is empty, apart from the dtype if there are pieces.
    kSharded,
    kObject,  // range: a torch.save archive
    kInt,     // text: decimal
    kStr,     // text
    kBool,    // text: "True" or "False"
    kBytes,   // text: base64
    kFloat,   // text: base64 for eight little-endian bytes
  };
  int64_t rank = 0;
  // Without the rank. An element is an index where the container is a list.
  StatePath path;
  Kind kind = Kind::kTensor;
  bool is_replicated = false;
  SnapshotTensor tensor;
  std::vector<SnapshotPiece> pieces;
  SnapshotRange range;
  std::string text;
};

struct SnapshotManifest {
  std::string version;  // empty when absent
  int64_t world_size = 0;
  std::vector<std::string> files;      // relative paths, without duplicates
  std::vector<SnapshotEntry> entries;  // without containers, by rank
  // All lists' places: rank and path.
  std::vector<std::pair<int64_t, StatePath>> lists;
};

// Reads a manifest with `length` bytes. DataLoss, with the entry's path, if it
// is malformed: a rank beyond world_size, a path with a wrong % code, a file
// that leads out of the directory, a reversed byte range or one that differs
// from the elements' length, a piece with another size than the tensor.
// Unimplemented for unknown entry types and dtypes.
absl::StatusOr<SnapshotManifest> ParseSnapshotManifest(uint64_t length,
                                                       ReadAt read);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_SNAPSHOT_MANIFEST_H_
