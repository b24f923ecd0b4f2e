// SPDX-License-Identifier: Apache-2.0
// The parts that all destinations share: the text of digests, the names for
// staging, and the refusal of other workers.
//
// Tested by tests/dcp/checkpoint/destination/renamed_destination_test.cc.
#include "dcp/checkpoint/destination/destination.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/destination/destination_names.h"

namespace dcp {
std::string Destination::StagingPath(absl::string_view path, Kind kind,
                                     absl::string_view id) {
  const std::string plain = WithoutTrailingSlashes(path);
  if (kind == Kind::kDcpDirectory) return plain;
  return SiblingPath(plain, id, "partial");
}

std::string Destination::DigestsText(Kind kind, absl::string_view index_name,
                                     absl::string_view index,
                                     std::vector<ChunkDigest> digests) {
  if (kind == Kind::kDcpDirectory) {
    digests.push_back(MakeIndexDigest(index_name, index));
  }
  return WriteDigests(std::move(digests));
}

absl::Status Destination::RefuseOtherWorkers(FileSystem& fs,
                                             absl::string_view path,
                                             const OwnFiles& own) {
  for (const bool is_inside : {true, false}) {
    const absl::StatusOr<std::vector<DirectoryEntry>> entries =
        fs.List(is_inside ? std::string(path) : ParentDirectory(path));
    if (!entries.ok()) continue;  // other checks report this
    for (const DirectoryEntry& entry : *entries) {
      const std::string& name = entry.name;
      const bool has_records =
          is_inside ? IsWorkRecordsName(name)
                    : IsSiblingName(name, BaseName(path), kWorkRecordsSuffix);
      const bool is_own = std::find(own.names.begin(), own.names.end(), name) !=
                          own.names.end();
      if (!has_records || is_own) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          path, " is the destination of workers with records in ", name,
          ": wait until they are done, or remove their work with `dcp-convert "
          "workers ",
          path, " --discard`"));
    }
  }
  return absl::OkStatus();
}

}  // namespace dcp
