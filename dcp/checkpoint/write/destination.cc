// Tested by tests/dcp/checkpoint/write/renamed_destination_test.cc.
#include "dcp/checkpoint/write/destination.h"

#include <utility>

#include "dcp/checkpoint/write/destination_names.h"
#include "dcp/checkpoint/write/renamed_destination.h"
#include "dcp/checkpoint/write/store_destination.h"

namespace dcp {
namespace {

bool HasRename(FileSystem& fs, absl::string_view path) {
  return fs.TraitsOf(path).has_rename;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Destination>> Destination::Plan(
    FileSystem& fs, absl::string_view path, Kind kind, bool overwrite,
    const OwnFiles& own, absl::string_view writer) {
  return HasRename(fs, path)
             ? RenamedDestination::Plan(fs, path, kind, overwrite, own, writer)
             : StoreDestination::Plan(fs, path, kind, overwrite, own);
}

absl::StatusOr<std::unique_ptr<Destination>> Destination::Look(
    FileSystem& fs, absl::string_view path, Kind kind, bool overwrite,
    const OwnFiles& own) {
  return HasRename(fs, path)
             ? RenamedDestination::Look(fs, path, kind, overwrite, own)
             : StoreDestination::Plan(fs, path, kind, overwrite, own);
}

std::string Destination::StagingOf(absl::string_view path, Kind kind,
                                   absl::string_view id) {
  const std::string plain = WithoutTrailingSlashes(path);
  if (kind == Kind::kDcpDirectory) return plain;
  return SiblingPath(plain, id, "partial");
}

std::string Destination::DigestsText(Kind kind, absl::string_view index_name,
                                     absl::string_view index,
                                     std::vector<ChunkDigest> digests) {
  if (kind == Kind::kDcpDirectory) {
    digests.push_back(DigestOfIndex(index_name, index));
  }
  return WriteDigests(std::move(digests));
}

std::unique_ptr<Destination> Destination::Attach(FileSystem& fs,
                                                 absl::string_view path) {
  return HasRename(fs, path) ? RenamedDestination::Attach(fs, path)
                             : StoreDestination::Attach(fs, path);
}

}  // namespace dcp
