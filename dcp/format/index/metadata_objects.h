// SPDX-License-Identifier: Apache-2.0
// The objects that occur by the million in a large checkpoint's index:
// torch.Size, ChunkStorageMetadata, MetadataIndex and _StorageInfo. While the
// pickle is read, each is replaced by a 16-byte token, instead of some 450
// bytes for the attributes; equal sizes and equal names are stored once. The
// parts of save plans (SavePlan, WriteItem and TensorWriteData, which
// Megatron-core keeps in the index) become tokens without meaning. A malformed
// object is left as it is, so that the caller, which knows the tensor's name,
// reports the error. Not thread-safe.
#ifndef DCP_FORMAT_INDEX_METADATA_OBJECTS_H_
#define DCP_FORMAT_INDEX_METADATA_OBJECTS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// The module with ByteCheckpoint's own Metadata and _StorageInfo. Their
// attributes include DCP's.
inline constexpr absl::string_view kByteCheckpointModule =
    "bytecheckpoint.checkpointer.meta_type";

// DataLoss: "a name has an unexpected value: 5".
absl::Status WrongType(absl::string_view what, const Value& value);

// Shortens a text from the index for use in a message, because a hostile text
// could be very long.
inline absl::string_view Short(absl::string_view text) {
  return text.substr(0, 200);
}

// One object's attributes: the dict that BUILD assigned to it.
class Attributes {
 public:
  // DataLoss unless `object` is made by `module`.`name`() and has unique
  // attributes. Attributes that are never requested are ignored.
  static absl::StatusOr<Attributes> FromObject(const Value& object,
                                               absl::string_view module,
                                               absl::string_view name);

  // None if absent.
  Value Get(absl::string_view name) const;

 private:
  explicit Attributes(absl::Span<const Value> items) : items_(items) {}
  size_t FindIndex(absl::string_view name) const;

  absl::Span<const Value> items_;
};

class MetadataObjects {
 public:
  // Identifiers for sizes, names and items. Equal sizes share an identifier,
  // and so do equal names.
  using SizeId = uint32_t;
  using NameId = uint32_t;
  using InfoId = uint32_t;
  static constexpr SizeId kNoSize = std::numeric_limits<SizeId>::max();

  struct Chunk {
    SizeId offsets;
    SizeId sizes;
  };
  // A MetadataIndex without the index, which is only a hint.
  struct Key {
    NameId name;
    SizeId offset;  // kNoSize if it is not a tensor
  };
  MetadataObjects();
  MetadataObjects(const MetadataObjects&) = delete;
  MetadataObjects& operator=(const MetadataObjects&) = delete;

  // The function for PickleOptions::replace.
  std::optional<Value> Replace(const Value& object);

  // Read the value, which is either a token or the object itself. DataLoss if
  // it is neither, or Unimplemented for a transformed item.
  absl::StatusOr<SizeId> ReadSize(const Value& value);
  absl::StatusOr<Chunk> ReadChunk(const Value& value);
  absl::StatusOr<Key> ReadKey(const Value& value);
  absl::StatusOr<InfoId> ReadInfo(const Value& value);

  // A size's dimensions. Valid until the next size is added.
  absl::Span<const int64_t> dims(SizeId id) const;
  absl::string_view name(NameId id) const { return names_[id]; }
  // A _StorageInfo; `file` is an index into files().
  const StorageInfo& info(InfoId id) const { return infos_[id]; }
  // The relative paths without duplicates, in the order in which they were
  // found.
  const std::vector<std::string>& files() const { return files_; }

 private:
  struct Size {
    uint32_t first;  // in dims_
    uint32_t num_dims;
  };
  struct SizeHash {
    using is_transparent = void;
    const MetadataObjects* objects;
    size_t operator()(absl::Span<const int64_t> dims) const;
    size_t operator()(SizeId id) const { return (*this)(objects->dims(id)); }
  };
  struct SizeEqual {
    using is_transparent = void;
    const MetadataObjects* objects;
    bool operator()(SizeId a, SizeId b) const { return a == b; }
    bool operator()(SizeId id, absl::Span<const int64_t> dims) const {
      return objects->dims(id) == dims;
    }
  };

  absl::StatusOr<SizeId> ParseSize(const Value& value);
  absl::StatusOr<Chunk> ParseChunk(const Value& value);
  absl::StatusOr<Key> ParseKey(const Value& value);
  absl::StatusOr<InfoId> ParseInfo(const Value& value);
  absl::StatusOr<uint32_t> FileNumber(absl::string_view path);

  std::vector<int64_t> dims_;
  std::vector<Size> sizes_;
  absl::flat_hash_set<SizeId, SizeHash, SizeEqual> size_ids_;
  absl::node_hash_map<std::string, NameId> name_ids_;
  std::vector<absl::string_view> names_;  // keys in name_ids_
  absl::node_hash_map<std::string, uint32_t> file_ids_;
  std::vector<std::string> files_;
  std::vector<StorageInfo> infos_;
};

}  // namespace dcp

#endif  // DCP_FORMAT_INDEX_METADATA_OBJECTS_H_
