// SPDX-License-Identifier: Apache-2.0

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
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/formats/dcp_opener.h"

namespace dcp {
namespace {

// Adds the digests in `more` for stretches that `digests` lacks.
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

// The digests in the file at `path`; none without this file.
absl::StatusOr<std::vector<ChunkDigest>> ReadDigestFile(
    FileSystem& fs, const std::string& path) {
  // A single file has no separate directory for digests.
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

// The digests in each of `places`.
absl::StatusOr<std::vector<std::vector<ChunkDigest>>> ReadDigestFiles(
    FileSystem& fs, const std::string& path,
    const std::vector<DigestFile>& places) {
  std::vector<std::string> names;
  for (const DigestFile& file : places) {
    names.push_back(JoinPath(file.folder, file.name));
  }
  std::vector<std::vector<ChunkDigest>> all(names.size());
  const SourceFiles files(fs, path, std::move(names), DirectMode::kOff,
                          /*follow_symlinks=*/false);
  DCP_RETURN_IF_ERROR(files.ForEach({}, [&](uint32_t i) -> absl::Status {
    DCP_ASSIGN_OR_RETURN(all[i], ReadDigestFile(fs, files.FullPath(i)));
    return absl::OkStatus();
  }));
  return all;
}

}  // namespace

absl::StatusOr<std::vector<ChunkDigest>> ReadRecordedDigests(
    FileSystem& fs, const std::string& path, const CheckpointParts& parts) {
  DCP_ASSIGN_OR_RETURN(std::vector<std::vector<ChunkDigest>> all,
                       ReadDigestFiles(fs, path, parts.digest_files));
  std::vector<ChunkDigest> digests;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& folder = parts.digest_files[i].folder;
    for (ChunkDigest& digest : all[i]) {
      digest.file = JoinPath(folder, digest.file);
      digests.push_back(std::move(digest));
    }
  }
  AddMissing(parts.digests, digests);
  return digests;
}

absl::Status CheckRecordedIndex(FileSystem& fs, const std::string& path,
                                const CheckpointParts& parts) {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::vector<ChunkDigest>> all,
                       ReadDigestFiles(fs, path, parts.digest_files));
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<ChunkDigest>& digests = all[i];
    const auto recorded = std::find_if(
        digests.begin(), digests.end(),
        [](const auto& digest) { return digest.file == kDcpMetadataName; });
    if (recorded == digests.end()) continue;
    const std::string name =
        JoinPath(parts.digest_files[i].folder, recorded->file);
    const std::string index_path = JoinPath(path, name);
    DCP_ASSIGN_OR_RETURN(
        const std::string index,
        ReadFile(fs, index_path, kMaxMetadataBytes, /*follow_symlinks=*/false));
    const ChunkDigest found = MakeIndexDigest(recorded->file, index);
    if (found == *recorded) continue;
    return WithPlace(
        absl::DataLossError(absl::StrFormat(
            "%s: the index is damaged: the digest of its %d bytes is %016x, "
            "recorded %016x of %d; names, shapes and dtypes may be wrong",
            index_path, found.length, found.digest, recorded->digest,
            recorded->length)),
        {.file = name});
  }
  return absl::OkStatus();
}

}  // namespace dcp
