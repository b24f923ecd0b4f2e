// SPDX-License-Identifier: Apache-2.0
// Checkpoint: an opened checkpoint in any format: the tensors and objects, and
// where their bytes are. Opening reads only the index; Locate then finds the
// payload inside each item that is needed. Payload is not read here. Used by
// one thread at a time; const methods by any number.
#ifndef DCP_CHECKPOINT_OPEN_CHECKPOINT_H_
#define DCP_CHECKPOINT_OPEN_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/files/source_loss.h"
#include "dcp/checkpoint/formats/item_locator.h"
#include "dcp/checkpoint/mapped/mapped_entries.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/io/file_system.h"

namespace dcp {

class Checkpoint {
 public:
  // Detects the format from the files at `path`; a model's folder in the cache
  // of Hugging Face's hub stands for the snapshot in it. NotFound when there is
  // no checkpoint, DataLoss when it is malformed, PermissionDenied when a
  // pickle needs more than data, Unimplemented for valid input that is not
  // supported. Cancelled once `stop` is requested; it is checked between
  // blocks, files and entries, but parsing is not interrupted. `fs` must
  // outlive the checkpoint.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(
      FileSystem& fs, absl::string_view path, const OpenOptions& options,
      const std::stop_token& stop = {});

  Format format() const { return parts_.format; }
  Dialect dialect() const { return parts_.dialect; }
  const std::string& path() const { return path_; }
  const std::vector<std::pair<std::string, std::string>>& properties() const {
    return parts_.properties;
  }
  const std::vector<std::pair<std::string, std::string>>& metadata() const {
    return parts_.metadata;
  }
  // Parts that the checkpoint lacks or cannot restore, and those of the
  // checkpoints from which a mapping takes an adapter or a mean. A program that
  // opens a checkpoint reports them to the user.
  const std::vector<SourceLoss>& losses() const { return parts_.losses; }
  // Errors in indices and headers, if it was opened without
  // OpenOptions::check_index; each error's place names the file.
  const std::vector<absl::Status>& damages() const { return parts_.damages; }
  // The first of damages(); OK without any.
  absl::Status CheckIndex() const;
  // The error of dcp::CheckRecordedIndex, which reads .metadata again; the
  // first call does so.
  absl::Status CheckRecordedIndex();
  // The digests that the writer recorded; see recorded_digests.h. Blocking.
  absl::StatusOr<std::vector<ChunkDigest>> ReadRecordedDigests() const;
  // With a mapping, the entries that it makes.
  const std::vector<CheckpointEntry>& entries() const {
    return mapped_.has_value() ? mapped_->entries : parts_.entries;
  }
  // The stored entries.
  const std::vector<CheckpointEntry>& stored_entries() const {
    return parts_.entries;
  }
  // The mapping's result; null without one.
  const MappedEntries* mapped() const {
    return mapped_.has_value() ? &*mapped_ : nullptr;
  }
  // For messages about an entry: the stored tensors from which a mapping makes
  // it, "a, b and 3 others"; empty without a mapping.
  std::string SourceNames(uint32_t entry) const;
  // For messages about a missing name: the names that the mapping makes
  // instead, "; llama, from hf to torchtitan, makes a, b and 20 others from the
  // stored tensors"; empty without a mapping.
  std::string NamesMade() const;
  bool flattened() const { return parts_.flattened; }
  // The index of the entry with this name.
  std::optional<uint32_t> Find(absl::string_view fqn) const;

  // The contents of a single .pt file, with the containers; null for other
  // formats and dialects, for several files, with a mapping, and if an index
  // leaves something out. The leaves are the entries, in the same order.
  const TorchArchive* torch_archive() const {
    return parts_.archives.size() == 1 && parts_.dialect == Dialect::kTorch &&
                   !parts_.leaves_out && !mapped_.has_value()
               ? parts_.archives[0].get()
               : nullptr;
  }

  // Whether the file, an index into files(), is a torch.save file.
  bool IsTorchFile(uint32_t file) const {
    return file < parts_.archives.size() && parts_.archives[file] != nullptr;
  }

  const SourceFiles& files() const { return *parts_.files; }
  SourceFiles& files() { return *parts_.files; }
  // The adapter, or the other checkpoints for a mean.
  absl::Span<const std::unique_ptr<Checkpoint>> others() const {
    return others_;
  }
  // Unavailable if an open file, also one with an adapter or for a mean, was
  // written to since it was opened.
  absl::Status CheckUnchanged() const;

  // All chunks from which the given entries are made, as chunks of stored
  // entries.
  std::vector<EntryChunk> StoredChunks(
      absl::Span<const uint32_t> entries) const;

  // Finds the payload for the given entries (indices): reads each item's head
  // and tail once, at full queue depth, and checks each item against the index.
  // Entries that are already located cost nothing.
  absl::Status Locate(absl::Span<const uint32_t> entries,
                      std::stop_token stop = {},
                      const ItemVisitor& visitor = nullptr);
  // The same for stored entries, and for some chunks of them.
  absl::Status LocateStored(absl::Span<const uint32_t> stored,
                            std::stop_token stop = {}) {
    return LocateChunks(ChunksInEntries(parts_, stored), std::move(stop));
  }
  absl::Status LocateChunks(absl::Span<const EntryChunk> chunks,
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
        map_(options.map),
        locate_memory_bytes_(options.locate_memory_bytes),
        progress_(options.progress) {}
  absl::Status Map(const MapSpec& spec, const std::stop_token& stop);
  void IndexNames();

  FileSystem& fs_;
  const std::string path_;
  CheckpointParts parts_;
  // The caller of Open shares it; null without a mapping.
  const std::shared_ptr<const MapSpec> map_;
  const uint64_t locate_memory_bytes_;
  OpenProgress* const progress_;  // or null
  // The checkpoints with adapters and for means.
  std::vector<std::unique_ptr<Checkpoint>> others_;
  std::optional<MappedEntries> mapped_;  // points into parts_ and others_
  std::optional<absl::Status> recorded_index_;
  // Views of the entries' names.
  absl::flat_hash_map<absl::string_view, uint32_t> by_name_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_CHECKPOINT_H_
