// SPDX-License-Identifier: Apache-2.0
// The index of ByteCheckpoint, .metadata: that of DCP with other classes, in
// which each tensor's pickle is kept in the index and its storage alone in the
// data file. Checks what ParseDcpMetadata checks, and that the pickles fit. Any
// thread; pure.
// Source: bytecheckpoint/checkpointer/meta_type.py, utilities/serialization.py,
// utilities/ckpt_format/fsdp_ckpt_utils.py (0.0.2).
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
  // Where the elements of a chunk are in the bytes that its StorageInfo names.
  // They are inside these bytes.
  struct Chunk {
    uint64_t offset = 0;  // bytes to its first element
    Dims strides;         // elements; empty means row-major
    bool conj = false;
    bool neg = false;
  };
  // A parameter in a flat parameter of FSDP1, or padding.
  struct FlatSlot {
    std::string name;  // empty: padding
    Dims shape;        // its volume is numel
    int64_t numel = 0;
  };

  Metadata metadata;
  // Parallel to metadata.entries, and for a tensor to its chunks. A chunk
  // without elements has no meaningful value.
  std::vector<std::vector<Chunk>> chunks;
  // For each entry that is a flat parameter, by fqn, what is in it, in order.
  absl::flat_hash_map<std::string, std::vector<FlatSlot>> flat;
};

// Whether a pickle that begins with `head` (256 bytes are enough) is such an
// index.
bool IsByteCheckpointMetadata(absl::string_view head);

absl::StatusOr<ByteCheckpointMetadata> ParseByteCheckpointMetadata(
    ByteSpan bytes);

}  // namespace dcp

#endif  // DCP_FORMAT_INDEX_BYTECHECKPOINT_METADATA_H_
