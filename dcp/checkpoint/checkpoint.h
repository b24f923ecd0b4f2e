// Checkpoint: an opened checkpoint of any format, as tensors and objects with
// the places of their bytes. Opening reads the index only; Locate then finds
// the payload inside each item that is needed. No payload is read here. Used
// by one thread at a time; const methods by any number.
#ifndef DCP_CHECKPOINT_CHECKPOINT_H_
#define DCP_CHECKPOINT_CHECKPOINT_H_

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
#include "dcp/checkpoint/digests.h"
#include "dcp/checkpoint/source_files.h"
#include "dcp/format/torch_archive.h"
#include "dcp/format/value.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/element.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

enum class Format : uint8_t {
  kDcp,          // a directory with .metadata
  kSafetensors,  // a file, or a directory of them
  kTorch,        // a .pt file, or the .bin shards of a model
};
absl::string_view FormatName(Format format);  // "dcp", "safetensors", "pt"
// Accepts also "torch", "pth", "bin" for kTorch.
absl::StatusOr<Format> ParseFormat(absl::string_view name);

// Where the elements of one chunk lie. `item` is what the index says; the
// rest is known once located.
struct ChunkLocation {
  // The zip record that holds the elements, and perhaps others, with its
  // CRC-32; without length where none is recorded.
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

// A Python object that is no tensor. Tensors inside it (a tuple of tensors is
// one object) are kept beside it.
struct ObjectEntry {
  StorageInfo item;  // of a .pt file only the file has a meaning
  bool located = false;
  bool has_crc = false;  // of the pickle
  Value value;
  // The tensors in `value`, and the storages that stand in it by themselves,
  // found by the identity of their Value.
  absl::flat_hash_map<const void*, TensorEntry> tensors;
  // Why the object cannot be used but as the bytes it is stored in: it is of a
  // class that we do not know, or not supported. `value` is then None, or in a
  // .pt file for looking at only.
  absl::Status unreadable;
};

// A short rendering of a located object for people.
std::string ToString(const ObjectEntry& object, size_t max_bytes);

struct CheckpointEntry {
  std::string fqn;
  StatePath path;  // empty when the format has none
  std::variant<TensorEntry, ObjectEntry> value;

  const TensorEntry* tensor() const { return std::get_if<TensorEntry>(&value); }
  const ObjectEntry* object() const { return std::get_if<ObjectEntry>(&value); }
};

// An item that is being looked into, for a visitor that checks its bytes.
struct VisitedItem {
  uint32_t entry = 0;  // which of the checkpoint's
  uint32_t chunk = 0;  // of a tensor
  StorageInfo storage;
  const TorchArchive* archive = nullptr;
  // Bytes of the item that are in memory already, `length` from `offset` in the
  // item; all of a small one are. Empty where they would have to be read.
  absl::FunctionRef<ByteSpan(uint64_t offset, uint64_t length)> bytes;
};

// Called for each item that is an archive of torch.save, sound or not in other
// respects; by several threads at once.
using ItemVisitor = std::function<void(const VisitedItem& item)>;

// How far opening has come: written by the threads that open and locate, read
// by any.
struct OpenProgress {
  // Items to look into, and those that are done; both 0 while the index is
  // read.
  std::atomic<uint64_t> num_items{0};
  std::atomic<uint64_t> num_items_located{0};
};

struct OpenOptions {
  DirectMode direct = DirectMode::kAuto;
  // Of a checkpoint saved with use_collectives=False, which has an index for
  // each rank (__{rank}.metadata): whose to read. Without it only a checkpoint
  // of one rank opens.
  int64_t rank = -1;
  // Optional; outlives the checkpoint.
  OpenProgress* progress = nullptr;
  // Of blocks while Locate reads, at most; kMinMemoryBytes at least. Twice as
  // much lets two threads share many items.
  uint64_t locate_memory_bytes = 2 * kMinMemoryBytes;
  // Checks the CRC-32 of every pickle that is read, here or by Locate. Off,
  // damaged objects are read as far as they make sense.
  bool check_crcs = false;
};

// What goes on while a checkpoint is opened, for CheckStop.
inline constexpr absl::string_view kOpening = "the checkpoint was opened";

// What an opener of one format finds out (see dcp_opener.h and its siblings).
struct CheckpointParts {
  Format format = Format::kDcp;
  // What the format's own header says of its writer, as label and text:
  // "version", "save id", "container", safetensors' metadata.
  std::vector<std::pair<std::string, std::string>> properties;
  // The __metadata__ of safetensors, but for what describes how DCP cut the
  // tensors. Of several files it is the union; where they differ, the first in
  // the order of names counts, and the key is listed.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> metadata_conflicts;
  // That the headers of safetensors files have of their tensors.
  std::vector<ChunkDigest> digests;
  std::vector<CheckpointEntry> entries;  // in the order of the index
  bool check_crcs = false;               // as OpenOptions say
  bool flattened = true;  // false: a DCP checkpoint saved without flattening
  std::unique_ptr<SourceFiles> files;
  ValueArena arena;  // of the objects
  // The torch.save files, parallel to `files`. Their arenas hold the objects.
  std::vector<std::unique_ptr<TorchArchive>> archives;
};

class Checkpoint {
 public:
  // Finds out the format from what is at `path`. NotFound when there is no
  // checkpoint, DataLoss when it is malformed, PermissionDenied when a pickle
  // wants more than data, Unimplemented for what is valid but not supported;
  // Cancelled once `stop` is requested, which is looked at between blocks,
  // files and entries: what is parsed is parsed to its end. `fs` must outlive
  // the checkpoint.
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
  // The number of the entry of that name.
  std::optional<uint32_t> Find(absl::string_view fqn) const;

  // What one .pt file holds, containers and all; null for other formats and for
  // several files. Its leaves are the entries, in their order.
  const TorchArchive* torch_archive() const {
    return parts_.archives.size() == 1 ? parts_.archives[0].get() : nullptr;
  }

  const SourceFiles& files() const { return *parts_.files; }
  SourceFiles& files() { return *parts_.files; }

  // Finds the payload of the given entries (indices), reading the head and
  // tail of each item once, at full queue depth; checks each item against the
  // index. Entries that are located already cost nothing.
  absl::Status Locate(absl::Span<const uint32_t> entries,
                      std::stop_token stop = {},
                      const ItemVisitor& visitor = nullptr);
  // The same for all entries. `visitor` sees the items that are looked into; it
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

// Whether the file begins as a safetensors file or one of torch.save does. A
// cheap look at its first bytes, for those who are about to replace it.
absl::StatusOr<bool> IsCheckpointFile(FileSystem& fs, absl::string_view path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CHECKPOINT_H_
