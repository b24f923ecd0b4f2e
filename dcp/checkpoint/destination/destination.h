// SPDX-License-Identifier: Apache-2.0
// Destination: how a checkpoint appears at its destination whole or not at all,
// whatever crashes when. There are two ways: on a file system something is
// renamed (renamed_destination.h), in an object store, which cannot rename,
// objects are put in an order (store_destination.h). Used by one thread.
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

// What belongs to one conversion, whichever of its runs made it.
struct OwnFiles {
  std::string id;  // the save id; a part of the sibling's name
  // What earlier runs made; files that exist under these names are no obstacle.
  bool ran_before = false;
  // Other workers use them at the same time: nothing is removed after an error.
  bool is_shared = false;
  bool made_directory = false;
  bool has_committed = false;      // what is there now is its checkpoint
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

  // Where the data files of the resumable conversion `id` are before the
  // commit.
  static std::string StagingOf(absl::string_view path, Kind kind,
                               absl::string_view id);

  // Removes everything that was made, unless it may have become a checkpoint.
  virtual ~Destination() = default;
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  // A name for the next data file of a rank that no file in the directory has;
  // see IsDataFileName. For kDcpDirectory.
  virtual std::string NextDataFileName(int64_t rank) = 0;

  // ResourceExhausted, with the needed and the free bytes, when the file system
  // cannot hold `num_bytes` more: those of all files together. What is replaced
  // stays until the commit, so it does not make room.
  virtual absl::Status CheckSpace(uint64_t num_bytes) = 0;

  // Makes the directory that data files go into, and removes what earlier runs
  // of this conversion left there, except for `kept`, the data files that are
  // complete. `folders` are those that the names of data files have in front,
  // for kFolders: each comes after the one that it is in.
  virtual absl::Status Begin(const absl::flat_hash_set<std::string>& kept = {},
                             const std::vector<std::string>& folders = {}) = 0;

  // Whether anything was at the path before.
  virtual bool exists() const = 0;

  // Where data file `name`, which is ignored for kFile, is created.
  virtual std::string PathOf(absl::string_view name) const = 0;
  // Creates it. Any thread.
  virtual absl::StatusOr<File> CreateFile(absl::string_view name,
                                          const DataFile& file) = 0;
  // Says that the data file was, or will be, created: it is removed if there is
  // no commit.
  virtual void Created(absl::string_view name) = 0;

  // Makes the checkpoint appear. All data files are written, synced and closed.
  // `index_name` and `index` are the file that makes them a checkpoint
  // (.metadata, or the JSON index; none if the name is empty). `digests` are
  // written to `digests_name` unless there are none, with that of .metadata.
  virtual absl::Status Commit(absl::string_view index_name,
                              absl::string_view index,
                              absl::string_view digests_name,
                              const std::vector<ChunkDigest>& digests) = 0;

  // After this, a crash cannot undo the name of the sibling: if it is gone, it
  // has been renamed.
  virtual absl::Status SyncStaging() = 0;
  // Cleans up after an earlier run whose checkpoint has appeared, but which did
  // not finish cleaning up.
  virtual absl::Status FinishCommit() = 0;
  // Removes what earlier runs left.
  virtual void Discard() = 0;
  // Leaves what was made for a run that resumes.
  virtual void Keep() = 0;

 protected:
  Destination() = default;

  // The text of `digests` for a commit; of DCP also with that of the index.
  static std::string DigestsText(Kind kind, absl::string_view index_name,
                                 absl::string_view index,
                                 std::vector<ChunkDigest> digests);
  // FailedPrecondition if workers of another conversion are at work at `path`:
  // one would remove or replace the files of the other. Their records are in a
  // DCP directory, or next to anything else, whatever is written here.
  static absl::Status RefuseOtherWorkers(FileSystem& fs, absl::string_view path,
                                         const OwnFiles& own);
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_DESTINATION_H_
