// SPDX-License-Identifier: Apache-2.0
// ByteCheckpoint's index, .metadata: DCP's index with other classes. Each
// tensor's pickle is in the index and only the storage is in the data file.
// Makes the checks of ParseDcpMetadata, and checks that the pickles fit. Any
// thread; pure. Source: bytecheckpoint/checkpointer/meta_type.py,
// utilities/serialization.py, utilities/ckpt_format/fsdp_ckpt_utils.py (0.0.2).
#ifndef DCP_FORMAT_INDEX_BYTECHECKPOINT_METADATA_H_
#define DCP_FORMAT_INDEX_BYTECHECKPOINT_METADATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

struct ByteCheckpointMetadata {
  // The place of a chunk's elements within the bytes that the chunk's
  // StorageInfo names. They lie completely inside these bytes.
  struct Chunk {
    uint64_t offset = 0;  // bytes to the first element
    Dims strides;         // elements; empty means row-major
    bool conj = false;
    bool neg = false;
  };
  // A parameter, or padding, in a flat parameter of FSDP1.
  struct FlatSlot {
    std::string name;  // empty: padding
    Dims shape;        // the volume is numel
    int64_t numel = 0;
  };

  Metadata metadata;
  // Parallel to metadata.entries, and for a tensor to the chunks there. A chunk
  // without elements has no meaningful value.
  std::vector<std::vector<Chunk>> chunks;
  // For each entry that is a flat parameter, by fqn: the slots in order.
  absl::flat_hash_map<std::string, std::vector<FlatSlot>> flat;
};

// Whether a pickle that begins with `head` (256 bytes are enough) is such an
// index.
bool IsByteCheckpointMetadata(absl::string_view head);

absl::StatusOr<ByteCheckpointMetadata> ParseByteCheckpointMetadata(
    ByteSpan bytes);

}  // namespace dcp

#endif  // DCP_FORMAT_INDEX_BYTECHECKPOINT_METADATA_H_
