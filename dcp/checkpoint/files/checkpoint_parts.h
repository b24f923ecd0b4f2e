// SPDX-License-Identifier: Apache-2.0
// CheckpointParts: what the opener of a format finds; a Checkpoint consists of
// it. Movable data; it owns its files, archives and values.
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

// A file of digests, which is next to the files that it is about.
struct DigestFile {
  std::string folder;  // relative to the checkpoint; empty: its directory
  std::string name;
};

// One chunk of a tensor; an object is its chunk 0.
struct EntryChunk {
  uint32_t entry = 0;  // its index among the stored entries
  uint32_t chunk = 0;

  friend auto operator<=>(const EntryChunk&, const EntryChunk&) = default;
};

// The result of the opener of a format (dcp_opener.h and its siblings).
struct CheckpointParts {
  Format format = Format::kDcp;
  Dialect dialect = Dialect::kDcp;
  // What the format's own header says of its writer, as label and text:
  // "version", "save id", "container", safetensors' metadata.
  std::vector<std::pair<std::string, std::string>> properties;
  std::vector<SourceLoss> losses;
  // The __metadata__ of safetensors, except for how DCP cut the tensors. For
  // several files it is the union; where they differ, the first file by name
  // counts, and the key is listed in metadata_conflicts.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> metadata_conflicts;
  // The digests of tensors in the headers of safetensors files.
  std::vector<ChunkDigest> digests;
  // Errors of files with a header that contradicts the checksum that its writer
  // recorded of it; the place of each has the file.
  std::vector<absl::Status> damages;
  // Files that may exist and then have the digests of others (digests.h).
  std::vector<DigestFile> digest_files;
  std::vector<CheckpointEntry> entries;  // in the order of the index
  // The tensors in `entries` point to them; see quantization.h.
  std::vector<std::unique_ptr<const Quantization>> quantizations;
  bool check_index = true;  // as OpenOptions say
  bool flattened = true;    // false: a DCP checkpoint saved without flattening
  std::unique_ptr<SourceFiles> files;
  ValueArena arena;                     // holds the objects
  std::vector<ValueArena> more_arenas;  // hold further objects
  // The torch.save files, parallel to `files`; null for other files, and empty
  // if there are only others. Their arenas hold the objects.
  std::vector<std::unique_ptr<TorchArchive>> archives;
  // Whether the files have more than the entries, because an index leaves it
  // out.
  bool leaves_out = false;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_CHECKPOINT_PARTS_H_
