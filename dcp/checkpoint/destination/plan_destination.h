// SPDX-License-Identifier: Apache-2.0
// Makes a Destination for a path: on a file system or in an object store.
// Blocking; any thread.
#ifndef DCP_CHECKPOINT_DESTINATION_PLAN_DESTINATION_H_
#define DCP_CHECKPOINT_DESTINATION_PLAN_DESTINATION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/destination_path.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Inspects `path` and decides, for `writer`, the name that messages give to
// other writers. `fs` must outlive the result. Errors:
// - AlreadyExists when something is there and `overwrite` is off (an empty
//   directory does not count).
// - FailedPrecondition when another writer is at work.
// - FailedPrecondition when something there may not be replaced: a directory
//   where a file should go or the reverse; a file in none of the formats; a
//   pipe or a device; a symbolic link (except to a DCP directory); for
//   kDirectory, a directory with files that belong to no safetensors checkpoint
//   and that no own.companions replace (the error names them); for kFolders, a
//   directory with anything in it.
// - NotFound without the parent directory.
absl::StatusOr<std::unique_ptr<Destination>> PlanDestination(
    FileSystem& fs, const DestinationPath& path, Destination::Kind kind,
    bool overwrite, const OwnFiles& own = {},
    absl::string_view writer = "a writer");

// The same as PlanDestination, but takes no lock and changes nothing; Begin
// must not follow. If `own` ran before, FilePath names that run's files.
absl::StatusOr<std::unique_ptr<Destination>> LookAtDestination(
    FileSystem& fs, const DestinationPath& path, Destination::Kind kind,
    bool overwrite, const OwnFiles& own = {});

// For the ranks of a save that do not plan and commit. Data files go to the DCP
// directory `path`. The committing rank calls Created for them too, and removes
// them if necessary, because only it knows whether they became a checkpoint.
std::unique_ptr<Destination> AttachToDestination(FileSystem& fs,
                                                 const DestinationPath& path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_PLAN_DESTINATION_H_
