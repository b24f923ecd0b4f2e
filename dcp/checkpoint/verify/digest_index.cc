// SPDX-License-Identifier: Apache-2.0
// Sorts a checkpoint's recorded digests by file and offset.
// Tested by tests/dcp/checkpoint/verify/verify_test.cc.
#include "dcp/checkpoint/verify/digest_index.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/open/recorded_digests.h"

namespace dcp {

absl::Status DigestIndex::Read(const Checkpoint& checkpoint) {
  DCP_ASSIGN_OR_RETURN(const std::vector<ChunkDigest> digests,
                       checkpoint.ReadRecordedDigests());
  if (digests.empty()) return absl::OkStatus();
  absl::flat_hash_map<absl::string_view, uint32_t> file_index;
  const std::vector<std::string>& names = checkpoint.files().names();
  for (uint32_t i = 0; i < names.size(); ++i) file_index[names[i]] = i;
  digests_.reserve(digests.size());
  for (const ChunkDigest& digest : digests) {
    const auto it = file_index.find(digest.file);
    if (it == file_index.end()) continue;
    digests_.push_back(
        {it->second, digest.offset, digest.length, digest.digest});
  }
  std::stable_sort(digests_.begin(), digests_.end(),
                   [](const PlacedDigest& a, const PlacedDigest& b) {
                     return a.place() < b.place();
                   });
  return absl::OkStatus();
}

std::optional<size_t> DigestIndex::Find(uint32_t file, uint64_t offset,
                                        uint64_t length) const {
  const auto next = std::upper_bound(
      digests_.begin(), digests_.end(), std::pair(file, offset),
      [](const std::pair<uint32_t, uint64_t>& place,
         const PlacedDigest& digest) { return place < digest.place(); });
  if (next == digests_.begin()) return std::nullopt;
  const PlacedDigest& found = *(next - 1);
  if (found.place() != std::pair(file, offset) || found.length != length) {
    return std::nullopt;
  }
  return static_cast<size_t>(next - digests_.begin()) - 1;
}

}  // namespace dcp
