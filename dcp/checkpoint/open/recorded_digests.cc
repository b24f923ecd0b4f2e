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
  std::vector<ChunkDigest> digests;
  for (const DigestFile& file : checkpoint.digest_files()) {
    const std::string path =
        JoinPath(JoinPath(checkpoint.path(), file.folder), file.name);
    // A single file has no directory to itself in which digests could be kept.
    if (!fs.Stat(path).ok()) continue;
    DCP_ASSIGN_OR_RETURN(
        const std::string text,
        ReadFile(fs, path, kMaxMetadataBytes, /*follow_symlinks=*/false));
    DCP_ASSIGN_OR_RETURN(std::vector<ChunkDigest> found, ParseDigests(text));
    for (ChunkDigest& digest : found) {
      if (!file.folder.empty())
        digest.file = JoinPath(file.folder, digest.file);
      digests.push_back(std::move(digest));
    }
  }
  AddMissing(checkpoint.header_digests(), digests);
  return digests;
}

}  // namespace dcp
