#include "dcp/checkpoint/open/recorded_digests.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/dcp_opener.h"

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

// Those of one file; none without it.
absl::StatusOr<std::vector<ChunkDigest>> DigestsIn(FileSystem& fs,
                                                   const Checkpoint& checkpoint,
                                                   const DigestFile& file) {
  const std::string path =
      JoinPath(JoinPath(checkpoint.path(), file.folder), file.name);
  // A single file has no directory to itself in which digests could be kept.
  const absl::Status there = fs.Stat(path).status();
  if (absl::IsNotFound(there) || absl::IsInvalidArgument(there)) {
    return std::vector<ChunkDigest>();
  }
  DCP_RETURN_IF_ERROR(there);
  DCP_ASSIGN_OR_RETURN(
      const std::string text,
      ReadFile(fs, path, kMaxMetadataBytes, /*follow_symlinks=*/false));
  return ParseDigests(text);
}

}  // namespace

absl::StatusOr<std::vector<ChunkDigest>> ReadRecordedDigests(
    FileSystem& fs, const Checkpoint& checkpoint) {
  std::vector<ChunkDigest> digests;
  for (const DigestFile& file : checkpoint.digest_files()) {
    DCP_ASSIGN_OR_RETURN(std::vector<ChunkDigest> found,
                         DigestsIn(fs, checkpoint, file));
    for (ChunkDigest& digest : found) {
      if (!file.folder.empty())
        digest.file = JoinPath(file.folder, digest.file);
      digests.push_back(std::move(digest));
    }
  }
  AddMissing(checkpoint.header_digests(), digests);
  return digests;
}

absl::Status CheckRecordedIndex(FileSystem& fs, const Checkpoint& checkpoint) {
  for (const DigestFile& file : checkpoint.digest_files()) {
    DCP_ASSIGN_OR_RETURN(const std::vector<ChunkDigest> digests,
                         DigestsIn(fs, checkpoint, file));
    const auto recorded = std::find_if(
        digests.begin(), digests.end(),
        [](const auto& digest) { return digest.file == kDcpMetadataName; });
    if (recorded == digests.end()) continue;
    const std::string name = JoinPath(file.folder, recorded->file);
    const std::string path = JoinPath(checkpoint.path(), name);
    DCP_ASSIGN_OR_RETURN(
        const std::string index,
        ReadFile(fs, path, kMaxMetadataBytes, /*follow_symlinks=*/false));
    const ChunkDigest found = DigestOfIndex(recorded->file, index);
    if (found == *recorded) continue;
    return WithPlace(
        absl::DataLossError(absl::StrFormat(
            "%s: the index is damaged: the digest of its %d bytes is %016x, "
            "recorded %016x of %d; names, shapes and dtypes may be wrong",
            path, found.length, found.digest, recorded->digest,
            recorded->length)),
        {.file = name});
  }
  return absl::OkStatus();
}

}  // namespace dcp
