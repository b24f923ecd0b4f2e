// SPDX-License-Identifier: Apache-2.0
// CheckpointEntry: one name of a checkpoint: a tensor or an object, and where
// its bytes are. Plain data.
#ifndef DCP_CHECKPOINT_FILES_CHECKPOINT_ENTRY_H_
#define DCP_CHECKPOINT_FILES_CHECKPOINT_ENTRY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// Where the elements of one chunk are. `item` comes from the index; locating
// sets the rest.
struct ChunkLocation {
  // The zip record that holds the elements, and perhaps others, with the
  // CRC-32; the length is 0 if no CRC is recorded.
  struct Record {
    uint64_t offset = 0;  // in the file
    uint64_t length = 0;
    uint32_t crc = 0;
  };
  StorageInfo item;  // the torch.save archive, or the bare payload
  bool located = false;
  uint64_t payload_offset = 0;  // the chunk's first element in the file
  Dims strides;                 // elements; empty means row-major
  bool swap_bytes = false;
  bool conj = false;
  bool neg = false;
  Record record;
};

// Where one chunk's elements are in the tensor that an item holds, for dialects
// that store several chunks in an item, or a chunk in another shape.
struct ItemPart {
  Dims shape;  // the item's tensor
  // The chunk's elements, in row-major order. Apart from dimensions with size
  // 1, the box has the chunk's sizes, or it has one dimension.
  Box box;
};

// How a quantized tensor is stored; see quantization.h.
struct Quantization {
  std::string scheme;       // for people, such as "4 bits of bitsandbytes"
  std::string decode = {};  // the name in the option decode; empty: none
  // The rows and columns that share a scale according to config.json; empty:
  // those that can be decoded, or config.json does not say.
  std::vector<int64_t> block = {};
};

class LensedTensor;
class MappedTensor;

struct TensorEntry {
  DType dtype = DType::kFloat32;
  Dims shape;
  bool requires_grad = false;  // a Parameter's, in a .pt file
  std::vector<Box> boxes;      // one per chunk; disjoint, cover the shape
  std::vector<ChunkLocation> locations;  // parallel to boxes
  // Parallel to boxes; empty if every item holds one chunk as it is.
  std::vector<ItemPart> parts = {};
  // Why the elements cannot be read although the index has them: for example,
  // two files hold different ones. Locate returns this status. The boxes may
  // then overlap or leave gaps.
  absl::Status problem = {};
  // Set for a tensor that is made from other tensors, and has no chunks. Owner:
  // the checkpoint's MappedEntries, in `tensors`.
  const MappedTensor* mapped = nullptr;
  // Set for a tensor with computed elements. It has no chunks, and is only a
  // source for mapped tensors. Owner: the checkpoint's MappedEntries, in
  // `lensed` or `computed`.
  const LensedTensor* lensed = nullptr;
  // Set for a part of a quantized tensor: alone, these numbers mean nothing.
  // Owner: the checkpoint's CheckpointParts.
  const Quantization* quantization = nullptr;

  uint64_t num_bytes() const;
};

// A Python object that is not a tensor. Tensors inside it (a tuple with tensors
// is one object) are kept next to it.
struct ObjectEntry {
  // Has no length if the object is a part of an item or of a .pt file.
  StorageInfo item;
  bool located = false;
  bool has_crc = false;  // the pickle's
  Value value;
  // The tensors in `value`, and the storages outside tensors, by the address of
  // their Value. For an unreadable object: all storages.
  absl::flat_hash_map<const void*, TensorEntry> tensors;
  // Why only the object's stored bytes can be used: the class is unknown or not
  // supported. `value` is then None, or in a .pt file only for display.
  absl::Status unreadable;
};

// A short text for people that shows a located object: <module.Class> for an
// OpaqueClass.
std::string ToString(const ObjectEntry& object, size_t max_bytes);

struct CheckpointEntry {
  std::string fqn;
  StatePath path;  // empty when the format has none
  // In a mapped checkpoint, the pointer is to a stored object.
  std::variant<TensorEntry, ObjectEntry, const ObjectEntry*> value;

  const TensorEntry* tensor() const { return std::get_if<TensorEntry>(&value); }
  const ObjectEntry* object() const {
    const auto* const stored = std::get_if<const ObjectEntry*>(&value);
    return stored != nullptr ? *stored : std::get_if<ObjectEntry>(&value);
  }
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_CHECKPOINT_ENTRY_H_
