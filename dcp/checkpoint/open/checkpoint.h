// Checkpoint: an opened checkpoint of any format: its tensors and objects, and
// where their bytes are. Opening reads only the index; Locate then finds the
// payload inside each item that is needed. Payload is not read here. Used by
// one thread at a time; const methods by any number.
#ifndef DCP_CHECKPOINT_OPEN_CHECKPOINT_H_
#define DCP_CHECKPOINT_OPEN_CHECKPOINT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/open/digests.h"
#include "dcp/checkpoint/open/format.h"
#include "dcp/checkpoint/open/source_files.h"
#include "dcp/format/torch_archive.h"
#include "dcp/format/value.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/element.h"
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

struct TensorEntry {
  DType dtype = DType::kFloat32;
  Dims shape;
  bool requires_grad = false;  // of a Parameter in a .pt file
  std::vector<Box> boxes;      // of the chunks; disjoint, cover the shape
  std::vector<ChunkLocation> locations;  // parallel to boxes

  uint64_t num_bytes() const;
};

// A Python object that is not a tensor. Tensors inside it (a tuple of tensors
// is one object) are kept next to it.
struct ObjectEntry {
  StorageInfo item;  // in a .pt file only the file is meaningful
  bool located = false;
  bool has_crc = false;  // the pickle's
  Value value;
  // The tensors in `value`, and its storages outside tensors, by the identity
  // of their Value.
  absl::flat_hash_map<const void*, TensorEntry> tensors;
  // Why the object can only be used as its stored bytes: its class is unknown
  // or not supported. `value` is then None, or in a .pt file only for display.
  absl::Status unreadable;
};

// A short text form of a located object, for people.
std::string ToString(const ObjectEntry& object, size_t max_bytes);

struct CheckpointEntry {
  std::string fqn;
  StatePath path;  // empty when the format has none
  std::variant<TensorEntry, ObjectEntry> value;

  const TensorEntry* tensor() const { return std::get_if<TensorEntry>(&value); }
  const ObjectEntry* object() const { return std::get_if<ObjectEntry>(&value); }
};

// An item that is being located, for a visitor that checks its bytes.
struct VisitedItem {
  uint32_t entry = 0;  // its index in the checkpoint
  uint32_t chunk = 0;  // for a tensor
  StorageInfo storage;
  const TorchArchive* archive = nullptr;
  // The bytes [offset, offset + length) of the item, if they are already in
  // memory; all bytes of a small item are. Empty if they would have to be read.
  absl::FunctionRef<ByteSpan(uint64_t offset, uint64_t length)> bytes;
};

// Called for each item that is an archive of torch.save, even if it is invalid
// otherwise; by several threads at once.
using ItemVisitor = std::function<void(const VisitedItem& item)>;

// How far opening has come. Written by the threads that open and locate, read
// by any thread.
struct OpenProgress {
  // The items to locate, and those that are done; both 0 while the index is
  // read.
  std::atomic<uint64_t> num_items{0};
  std::atomic<uint64_t> num_items_located{0};
};

struct OpenOptions {
  DirectMode direct = DirectMode::kAuto;
  // For a checkpoint saved with use_collectives=False, which has an index for
  // each rank (__{rank}.metadata): the rank whose index is read. Without it,
  // only a checkpoint of one rank can be opened.
  int64_t rank = -1;
  // Optional; must outlive the checkpoint.
  OpenProgress* progress = nullptr;
  // The maximum memory for blocks in Locate; at least kMinMemoryBytes. With
  // twice that, two threads share many items.
  uint64_t locate_memory_bytes = 2 * kMinMemoryBytes;
  // Checks the CRC-32 of every pickle that is read, here or by Locate. If off,
  // damaged objects are read as far as possible.
  bool check_crcs = false;
};

// For CheckStop: what was going on while a checkpoint is opened.
inline constexpr absl::string_view kOpening = "the checkpoint was opened";

// The result of the opener of a format (dcp_opener.h and its siblings).
struct CheckpointParts {
  Format format = Format::kDcp;
  // What the format's own header says of its writer, as label and text:
  // "version", "save id", "container", safetensors' metadata.
  std::vector<std::pair<std::string, std::string>> properties;
  // The __metadata__ of safetensors, except for how DCP cut the tensors. For
  // several files it is the union; where they differ, the first file by name
  // counts, and the key is listed in metadata_conflicts.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> metadata_conflicts;
  // The digests of tensors in the headers of safetensors files.
  std::vector<ChunkDigest> digests;
  std::vector<CheckpointEntry> entries;  // in the order of the index
  bool check_crcs = false;               // as OpenOptions say
  bool flattened = true;  // false: a DCP checkpoint saved without flattening
  std::unique_ptr<SourceFiles> files;
  ValueArena arena;  // holds the objects
  // The torch.save files, parallel to `files`. Their arenas hold the objects.
  std::vector<std::unique_ptr<TorchArchive>> archives;
};

class Checkpoint {
 public:
  // Detects the format from what is at `path`. NotFound when there is no
  // checkpoint, DataLoss when it is malformed, PermissionDenied when a pickle
  // needs more than data, Unimplemented for valid input that is not supported.
  // Cancelled once `stop` is requested; it is checked between blocks, files and
  // entries, but parsing is not interrupted. `fs` must outlive the checkpoint.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(
      FileSystem& fs, absl::string_view path, const OpenOptions& options,
      const std::stop_token& stop = {});

  Format format() const { return parts_.format; }
  const std::string& path() const { return path_; }
  const std::vector<std::pair<std::string, std::string>>& properties() const {
    return parts_.properties;
  }
  const std::vector<std::pair<std::string, std::string>>& metadata() const {
    return parts_.metadata;
  }
  const std::vector<ChunkDigest>& header_digests() const {
    return parts_.digests;
  }
  const std::vector<CheckpointEntry>& entries() const { return parts_.entries; }
  bool flattened() const { return parts_.flattened; }
  // The index of the entry with that name.
  std::optional<uint32_t> Find(absl::string_view fqn) const;

  // The contents of a single .pt file, with its containers; null for other
  // formats and for several files. Its leaves are the entries, in the same
  // order.
  const TorchArchive* torch_archive() const {
    return parts_.archives.size() == 1 ? parts_.archives[0].get() : nullptr;
  }

  const SourceFiles& files() const { return *parts_.files; }
  SourceFiles& files() { return *parts_.files; }

  // Finds the payload of the given entries (indices): reads the head and tail
  // of each item once, at full queue depth, and checks each item against the
  // index. Entries that are already located cost nothing.
  absl::Status Locate(absl::Span<const uint32_t> entries,
                      std::stop_token stop = {},
                      const ItemVisitor& visitor = nullptr);
  // The same for all entries. `visitor` sees the items that are located now; it
  // may be null.
  absl::Status LocateAll(std::stop_token stop = {},
                         const ItemVisitor& visitor = nullptr);

 private:
  Checkpoint(FileSystem& fs, absl::string_view path, CheckpointParts parts,
             const OpenOptions& options)
      : fs_(fs),
        path_(path),
        parts_(std::move(parts)),
        locate_memory_bytes_(options.locate_memory_bytes),
        progress_(options.progress) {
    IndexNames();
  }
  void IndexNames();

  FileSystem& fs_;
  const std::string path_;
  CheckpointParts parts_;
  const uint64_t locate_memory_bytes_;
  OpenProgress* const progress_;  // or null
  // Views of the entries' names.
  absl::flat_hash_map<absl::string_view, uint32_t> by_name_;
};

// Whether the file begins like a safetensors or torch.save file. Reads only its
// first bytes; for callers that are about to replace it.
absl::StatusOr<bool> IsCheckpointFile(FileSystem& fs, absl::string_view path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_CHECKPOINT_H_
