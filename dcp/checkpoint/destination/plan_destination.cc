// SPDX-License-Identifier: Apache-2.0
// Chooses the Destination for a path by the path's file system.
//
// Tested by tests/dcp/checkpoint/destination/renamed_destination_test.cc.
#include "dcp/checkpoint/destination/plan_destination.h"

#include "dcp/checkpoint/destination/renamed_destination.h"
#include "dcp/checkpoint/destination/store_destination.h"

namespace dcp {
namespace {

bool HasRename(FileSystem& fs, const DestinationPath& path) {
  return fs.TraitsAt(path.path()).has_rename;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Destination>> PlanDestination(
    FileSystem& fs, const DestinationPath& path, Destination::Kind kind,
    bool overwrite, const OwnFiles& own, absl::string_view writer) {
  return HasRename(fs, path)
             ? RenamedDestination::Plan(fs, path, kind, overwrite, own, writer)
             : StoreDestination::Plan(fs, path, kind, overwrite, own);
}

absl::StatusOr<std::unique_ptr<Destination>> LookAtDestination(
    FileSystem& fs, const DestinationPath& path, Destination::Kind kind,
    bool overwrite, const OwnFiles& own) {
  return HasRename(fs, path)
             ? RenamedDestination::Look(fs, path, kind, overwrite, own)
             : StoreDestination::Plan(fs, path, kind, overwrite, own);
}

std::unique_ptr<Destination> AttachToDestination(FileSystem& fs,
                                                 const DestinationPath& path) {
  return HasRename(fs, path) ? RenamedDestination::Attach(fs, path)
                             : StoreDestination::Attach(fs, path);
}

}  // namespace dcp
