// SPDX-License-Identifier: Apache-2.0
// ItemPlacer: compares an item in a DCP checkpoint with the index, and puts the
// place of each chunk's payload, or the object's value, into the checkpoint's
// entries. Knows nothing about how items are read. Each lane has one, which is
// used by one thread; each item belongs to one lane.
#ifndef DCP_CHECKPOINT_FORMATS_ITEM_PLACER_H_
#define DCP_CHECKPOINT_FORMATS_ITEM_PLACER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/formats/item_order.h"
#include "dcp/format/safetensors/safetensors.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

class ItemPlacer {
 public:
  // State that all lanes share, in addition to the checkpoint.
  struct Shared {
    const std::vector<uint64_t> object_ends;  // from ObjectEnds
    absl::Mutex mutex;                        // guards the checkpoint's arena
  };

  // The chunks in an item, which is a tensor unless there is only one.
  using Item = absl::Span<const ItemChunk>;

  // All must outlive this.
  ItemPlacer(FileSystem& fs, CheckpointParts& parts, Shared& shared)
      : fs_(fs), parts_(parts), shared_(shared) {}

  absl::Status PlaceTensor(Item item, const TorchArchive& archive);
  // For an item that is not an archive: a tensor in a safetensors file.
  absl::Status PlaceByName(Item item);
  // An item that is an archive, but cannot be represented as an object, remains
  // in the checkpoint as unreadable.
  absl::Status PlaceObject(const ItemChunk& item,
                           const absl::StatusOr<TorchArchive>& archive);

 private:
  // The tensors in a data file that is one safetensors file, possibly after
  // some bytes entries. begin and end count from the start of the file.
  using NamedTensors = absl::flat_hash_map<std::string, SafetensorsTensor>;

  absl::StatusOr<ObjectEntry> MakeObjectEntry(
      const StorageInfo& storage, const absl::StatusOr<TorchArchive>& archive);
  absl::Status Place(Item item, absl::string_view what, DType dtype,
                     const Dims& shape, const ChunkLocation& location);
  absl::StatusOr<const NamedTensors*> ReadNamedTensors(uint32_t file);

  FileSystem& fs_;
  CheckpointParts& parts_;
  Shared& shared_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<NamedTensors>> named_tensors_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_ITEM_PLACER_H_
