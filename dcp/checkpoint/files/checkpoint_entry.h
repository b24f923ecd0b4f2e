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

// Where the elements of one chunk are. `item` comes from the index; the rest is
// known once located.
struct ChunkLocation {
  // The zip record that holds the elements, and perhaps others, with its
  // CRC-32; the length is 0 if no CRC is recorded.
  struct Record {
    uint64_t offset = 0;  // in the file
    uint64_t length = 0;
    uint32_t crc = 0;
  };
  StorageInfo item;  // the torch.save archive, or the bare payload
  bool located = false;
  uint64_t payload_offset = 0;  // in the file, of the chunk's first element
  Dims strides;                 // elements; empty means row-major
  bool swap_bytes = false;
  bool conj = false;
  bool neg = false;
  Record record;
};

// Where the elements of one chunk are in the tensor that its item holds, for
// dialects whose items hold several chunks, or a chunk in another shape.
struct ItemPart {
  Dims shape;  // of the tensor in the item
  // The elements of the chunk, in its row-major order. Without dimensions of
  // size 1, the box has the sizes of the chunk or one dimension.
  Box box;
};

// How a quantized tensor is stored; see quantization.h.
struct Quantization {
  std::string scheme;       // for people, such as "4 bits of bitsandbytes"
  std::string decode = {};  // its name in the option decode; empty: none
  // The rows and columns that config.json says share a scale; empty: those that
  // can be decoded, or nothing is said.
  std::vector<int64_t> block = {};
};

class LensedTensor;
class MappedTensor;

struct TensorEntry {
  DType dtype = DType::kFloat32;
  Dims shape;
  bool requires_grad = false;  // of a Parameter in a .pt file
  std::vector<Box> boxes;      // of the chunks; disjoint, cover the shape
  std::vector<ChunkLocation> locations;  // parallel to boxes
  // Parallel to boxes; empty if every item holds one chunk as it is.
  std::vector<ItemPart> parts = {};
  // Why the elements cannot be read although the index has them, such as two
  // files with different ones; Locate returns it. The boxes may overlap then,
  // or leave gaps.
  absl::Status problem = {};
  // If the tensor is made of others: how. It has no chunks then.
  const MappedTensor* mapped = nullptr;
  // If its elements are computed: how. It has no chunks then, and is only a
  // source of mapped tensors.
  const LensedTensor* lensed = nullptr;
  // If it is a part of a quantized tensor: how. Its numbers alone mean nothing.
  const Quantization* quantization = nullptr;

  uint64_t num_bytes() const;
};

// A Python object that is not a tensor. Tensors inside it (a tuple of tensors
// is one object) are kept next to it.
struct ObjectEntry {
  // Without a length if the object is a part of an item or of a .pt file.
  StorageInfo item;
  bool located = false;
  bool has_crc = false;  // the pickle's
  Value value;
  // The tensors in `value`, and its storages outside tensors, by the identity
  // of their Value. If the object is unreadable, all its storages.
  absl::flat_hash_map<const void*, TensorEntry> tensors;
  // Why the object can only be used as its stored bytes: its class is unknown
  // or not supported. `value` is then None, or in a .pt file only for display.
  absl::Status unreadable;
};

// A short text form of a located object, for people: <module.Class> for one of
// OpaqueClass.
std::string ToString(const ObjectEntry& object, size_t max_bytes);

struct CheckpointEntry {
  std::string fqn;
  StatePath path;  // empty when the format has none
  // The pointer is that of a mapped checkpoint to an object that is stored.
  std::variant<TensorEntry, ObjectEntry, const ObjectEntry*> value;

  const TensorEntry* tensor() const { return std::get_if<TensorEntry>(&value); }
  const ObjectEntry* object() const {
    const auto* const stored = std::get_if<const ObjectEntry*>(&value);
    return stored != nullptr ? *stored : std::get_if<ObjectEntry>(&value);
  }
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_CHECKPOINT_ENTRY_H_
