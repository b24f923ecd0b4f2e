#include "dcp/checkpoint/recorded_digests.h"

#include <string>

#include "absl/status/status.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"

namespace dcp {

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
  // A single file has no directory of its own to keep digests in.
  if (!fs.Stat(path).ok()) return std::vector<ChunkDigest>();
  DCP_ASSIGN_OR_RETURN(
      const std::string text,
      ReadFile(fs, path, kMaxMetadataBytes, /*follow_symlinks=*/false));
  return ParseDigests(text);
}

}  // namespace dcp
