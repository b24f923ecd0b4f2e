// SPDX-License-Identifier: Apache-2.0
// Digests: an XXH3-64 for every stretch of payload that was written, and for
// DCP's .metadata. A separate file next to the index holds them; PyTorch
// ignores it. PyTorch's formats lack such digests; they let `verify` find a
// flipped bit. Pure, except for the file name; any thread.
//
// The file is text: a first line "tessera-digests 1 xxh3-64", then a line for
// every stretch, "<16 hex digits> <offset> <length> <file name>", sorted by
// file, offset, length and digest, then "end <line count>".
#ifndef DCP_CHECKPOINT_FILES_DIGESTS_H_
#define DCP_CHECKPOINT_FILES_DIGESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

struct ChunkDigest {
  std::string file;  // relative to the checkpoint
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t digest = 0;

  friend bool operator==(const ChunkDigest&, const ChunkDigest&) = default;
};

// ".digests", or ".digests-<save id>", so that an older save's digests are
// never taken for those of the index that replaced it.
std::string DigestsName(absl::string_view save_id);
// True for every name that DigestsName returns.
bool IsDigestsName(absl::string_view name);

std::string WriteDigests(std::vector<ChunkDigest> digests);

// The digest of a whole index, such as .metadata. It stands among the digests
// for the files that the index describes, and shows damage to names and shapes.
ChunkDigest MakeIndexDigest(absl::string_view name, absl::string_view index);

// DataLoss for a text that WriteDigests does not write; file names are checked
// to stay inside the directory.
absl::StatusOr<std::vector<ChunkDigest>> ParseDigests(absl::string_view text);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_DIGESTS_H_
