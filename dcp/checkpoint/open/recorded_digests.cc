#include "dcp/checkpoint/open/recorded_digests.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

// Adds those of `more` whose stretch is not in `digests`.
void AddMissing(const std::vector<ChunkDigest>& more,
                std::vector<ChunkDigest>& digests) {
  absl::flat_hash_set<std::pair<std::string, uint64_t>> known;
  for (const ChunkDigest& digest : digests) {
    known.emplace(digest.file, digest.offset);
  }
  for (const ChunkDigest& digest : more) {
    if (!known.contains({digest.file, digest.offset})) {
      digests.push_back(digest);
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<ChunkDigest>> ReadRecordedDigests(
    FileSystem& fs, const Checkpoint& checkpoint) {
  if (checkpoint.format() == Format::kTorch) {
    return std::vector<ChunkDigest>();
  }
  std::string save_id;
  if (checkpoint.format() == Format::kDcp) {
    for (const auto& [label, text] : checkpoint.properties()) {
      if (label == "save id") save_id = text;
    }
    if (save_id.empty()) return std::vector<ChunkDigest>();
  }
  const std::string path = JoinPath(checkpoint.path(), DigestsName(save_id));
  // A single file has no directory to itself in which digests could be kept.
  if (!fs.Stat(path).ok()) return checkpoint.header_digests();
  DCP_ASSIGN_OR_RETURN(
      const std::string text,
      ReadFile(fs, path, kMaxMetadataBytes, /*follow_symlinks=*/false));
  DCP_ASSIGN_OR_RETURN(std::vector<ChunkDigest> digests, ParseDigests(text));
  AddMissing(checkpoint.header_digests(), digests);
  return digests;
}

}  // namespace dcp
