// SPDX-License-Identifier: Apache-2.0
// Destination: makes a checkpoint appear whole or not at all, wherever a crash
// happens. There are two ways: on a file system something is renamed
// (renamed_destination.h); in an object store, which cannot rename, objects are
// put in a certain order (store_destination.h). Used by one thread.
#ifndef DCP_CHECKPOINT_DESTINATION_DESTINATION_H_
#define DCP_CHECKPOINT_DESTINATION_DESTINATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/destination/replaceable.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The files that belong to one conversion, whichever run made them.
struct OwnFiles {
  std::string id;  // the save id; a part of the sibling's name
  // Earlier runs of the conversion may have made files under these names. Such
  // files do not prevent this run.
  bool ran_before = false;
  // Other workers use them at the same time: nothing is removed after an error.
  bool is_shared = false;
  bool made_directory = false;
  // the checkpoint at the path is this conversion's
  bool has_committed = false;
  std::vector<std::string> names;  // the data files' names
  // Files that are copied from the source (see CompanionFiles).
  std::vector<std::string> companions = {};
};

// How a data file is created.
struct DataFile {
  uint64_t size = 0;
  DirectMode direct = DirectMode::kAuto;
  // Every write but the last has this length and begins at a multiple of it, if
  // the file system does not rename; see FileSystemTraits.
  uint64_t block_bytes = 0;
  // Other processes write it too; see FileSystem::OpenShared.
  bool is_shared = false;
};

class Destination {
 public:
  using Kind = DestinationKind;

  // The place of the data files of the resumable conversion `id` before the
  // commit.
  static std::string StagingPath(absl::string_view path, Kind kind,
                                 absl::string_view id);

  // Removes everything that was made, unless it may have become a checkpoint.
  virtual ~Destination() = default;
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  // A name for the next data file of a rank that no file in the directory has;
  // see IsDataFileName. For kDcpDirectory.
  virtual std::string NextDataFileName(int64_t rank) = 0;

  // ResourceExhausted, with the needed and the free bytes, when the file system
  // cannot hold `num_bytes` more, the total for all files. A checkpoint that is
  // replaced stays until the commit, so it does not make room.
  virtual absl::Status CheckSpace(uint64_t num_bytes) = 0;

  // Makes the directory for the data files, and removes the files that earlier
  // runs of this conversion left there, except for `kept`, the data files that
  // are complete. For kFolders, `folders` are the folders in the data files'
  // names, parents first.
  virtual absl::Status Begin(const absl::flat_hash_set<std::string>& kept = {},
                             const std::vector<std::string>& folders = {}) = 0;

  // Whether anything was at the path before.
  virtual bool exists() const = 0;

  // Where data file `name`, which is ignored for kFile, is created.
  virtual std::string FilePath(absl::string_view name) const = 0;
  // Creates it. Any thread.
  virtual absl::StatusOr<File> CreateFile(absl::string_view name,
                                          const DataFile& file) = 0;
  // Says that the data file was, or will be, created: it is removed if there is
  // no commit.
  virtual void Created(absl::string_view name) = 0;

  // Makes the checkpoint appear. All data files are written, synced and closed.
  // The file `index_name` with the text `index` (.metadata, or the JSON index)
  // turns them into a checkpoint; an empty name means that there is none.
  // `digests` are written to `digests_name` unless there are none, with the
  // digest of .metadata.
  virtual absl::Status Commit(absl::string_view index_name,
                              absl::string_view index,
                              absl::string_view digests_name,
                              const std::vector<ChunkDigest>& digests) = 0;

  // After this, a crash cannot undo the sibling's name: if it is gone, it has
  // been renamed.
  virtual absl::Status SyncStaging() = 0;
  // Cleans up after an earlier run that made the checkpoint appear, but did not
  // finish cleaning up.
  virtual absl::Status FinishCommit() = 0;
  // Removes the files that earlier runs left.
  virtual void Discard() = 0;
  // Leaves the files of this run for one that resumes.
  virtual void Keep() = 0;

 protected:
  Destination() = default;

  // The text of `digests` for a commit; for DCP it includes the index's digest.
  static std::string DigestsText(Kind kind, absl::string_view index_name,
                                 absl::string_view index,
                                 std::vector<ChunkDigest> digests);
  // FailedPrecondition if workers of another conversion are at work at `path`:
  // one conversion would remove or replace the other's files. Their records are
  // in a DCP directory, or next to any other destination, whatever format is
  // written here.
  static absl::Status RefuseOtherWorkers(FileSystem& fs, absl::string_view path,
                                         const OwnFiles& own);
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_DESTINATION_H_
