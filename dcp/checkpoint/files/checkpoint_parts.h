// SPDX-License-Identifier: Apache-2.0
// CheckpointParts: everything that an opener finds; a Checkpoint consists of
// it. Movable data; it owns the files, archives and values.
#ifndef DCP_CHECKPOINT_FILES_CHECKPOINT_PARTS_H_
#define DCP_CHECKPOINT_FILES_CHECKPOINT_PARTS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/dialect.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/files/source_loss.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/value/value.h"

namespace dcp {

// A file with digests, next to the files that it describes.
struct DigestFile {
  std::string folder;  // relative to the checkpoint; empty: its directory
  std::string name;
};

// One chunk of a tensor; an object is its chunk 0.
struct EntryChunk {
  uint32_t entry = 0;  // index among the stored entries
  uint32_t chunk = 0;

  friend auto operator<=>(const EntryChunk&, const EntryChunk&) = default;
};

// An opener returns this (dcp_opener.h and similar headers).
struct CheckpointParts {
  Format format = Format::kDcp;
  Dialect dialect = Dialect::kDcp;
  // Facts about the writer in the format's own header, as label and text:
  // "version", "save id", "container", safetensors' metadata.
  std::vector<std::pair<std::string, std::string>> properties;
  std::vector<SourceLoss> losses;
  // The __metadata__ in safetensors, without DCP's keys about shards. For
  // several files it is the union; where they differ, the first file by name
  // counts, and metadata_conflicts lists the key.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> metadata_conflicts;
  // The tensors' digests in the headers of safetensors files.
  std::vector<ChunkDigest> digests;
  // Errors about files with a header that contradicts the writer's checksum of
  // the header. Each error's place names the file.
  std::vector<absl::Status> damages;
  // Files that may exist and then have digests of other files (digests.h).
  std::vector<DigestFile> digest_files;
  std::vector<CheckpointEntry> entries;  // in the order of the index
  // The tensors in `entries` point to them; see quantization.h.
  std::vector<std::unique_ptr<const Quantization>> quantizations;
  bool check_index = true;  // as in OpenOptions
  bool flattened = true;    // false: a DCP checkpoint saved without flattening
  std::unique_ptr<SourceFiles> files;
  ValueArena arena;                     // holds the objects
  std::vector<ValueArena> more_arenas;  // hold further objects
  // The torch.save files, parallel to `files`; null for other files, and empty
  // without any such file. Their arenas hold the objects.
  std::vector<std::unique_ptr<TorchArchive>> archives;
  // True if the files have more than the entries, because an index leaves
  // something out.
  bool leaves_out = false;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_CHECKPOINT_PARTS_H_
