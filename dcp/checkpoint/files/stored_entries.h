// SPDX-License-Identifier: Apache-2.0
// StoredEntries: the entries stored in one checkpoint. Plain data; points to
// the checkpoint.
#ifndef DCP_CHECKPOINT_FILES_STORED_ENTRIES_H_
#define DCP_CHECKPOINT_FILES_STORED_ENTRIES_H_

#include <string>

#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/source_files.h"

namespace dcp {

struct StoredEntries {
  std::string path;
  absl::Span<const CheckpointEntry> entries;
  SourceFiles* files = nullptr;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_STORED_ENTRIES_H_
