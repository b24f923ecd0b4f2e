// Destination: how a checkpoint appears at its destination whole or not at all,
// whatever crashes when. Three ways, one for each shape of destination:
//
//   DCP directory   data files go into the directory under names that nothing
//                   there has; the rename of .metadata is the commit; files of
//                   the replaced checkpoint are removed afterwards
//   plain directory a sibling directory is filled, then renamed or exchanged;
//                   one with folders replaces only an empty directory
//   single file     a sibling file is written, then renamed over
//
// Only one writer at a time works on a destination: it holds a lock from Plan
// until it is destroyed. Everything that it makes has its own names; a
// conversion that can resume after a kill (see OwnFiles) finds it again.
//
// destination.cc describes the protocol. Used by one thread.
#ifndef DCP_CHECKPOINT_WRITE_DESTINATION_H_
#define DCP_CHECKPOINT_WRITE_DESTINATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/open/digests.h"
#include "dcp/checkpoint/write/destination_lock.h"
#include "dcp/checkpoint/write/replaceable.h"
#include "dcp/io/file_system.h"

namespace dcp {

// What belongs to one conversion, whichever of its runs made it.
struct OwnFiles {
  std::string id;  // the save id; a part of the sibling's name
  // What earlier runs made; files that exist under these names are no obstacle.
  bool ran_before = false;
  bool made_directory = false;
  bool has_committed = false;      // what is there now is its checkpoint
  std::vector<std::string> names;  // the data files' names
  // Files that are copied from the source (see CompanionFiles).
  std::vector<std::string> companions = {};
};

class Destination {
 public:
  using Kind = DestinationKind;

  // Locks the destination `path` for `writer` (see DestinationLock), creating a
  // DCP directory first if there is none; removes what dead writers left, looks
  // at what is there, and decides. AlreadyExists when something is there and
  // `overwrite` is off (an empty directory does not count). FailedPrecondition
  // when another writer has the lock, or when what is there may not be
  // replaced: a directory where a file should go or the reverse, a file in none
  // of the formats, a pipe or a device, a symbolic link (except to a DCP
  // directory), or (kDirectory) a directory with files that belong to no
  // safetensors checkpoint and that none of own.companions replaces, the error
  // names them, or (kFolders) a directory with anything in it. NotFound without
  // the parent directory. `fs` must outlive this.
  static absl::StatusOr<std::unique_ptr<Destination>> Plan(
      FileSystem& fs, absl::string_view path, Kind kind, bool overwrite,
      const OwnFiles& own = {}, absl::string_view writer = "a writer");

  // The same as Plan, but takes no lock and changes nothing; Begin must not
  // follow. If `own` ran before, PathOf names its files.
  static absl::StatusOr<std::unique_ptr<Destination>> Look(
      FileSystem& fs, absl::string_view path, Kind kind, bool overwrite,
      const OwnFiles& own = {});

  // Where the data files of the resumable conversion `id` are before the
  // commit.
  static std::string StagingOf(absl::string_view path, Kind kind,
                               absl::string_view id);

  // For the ranks of a save other than the one that plans and commits. Data
  // files go to the DCP directory `path`. The committing rank, which calls
  // Created for them too, removes them if necessary, because only it knows
  // whether they became a checkpoint.
  static std::unique_ptr<Destination> Attach(FileSystem& fs,
                                             absl::string_view path);

  // Removes everything that was made, unless it may have become a checkpoint.
  ~Destination();
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  // A name for the next data file of a rank, "__{rank}_{i}.distcp", that no
  // file in the directory has. For kDcpDirectory.
  std::string NextDataFileName(int64_t rank);

  // ResourceExhausted, with the needed and the free bytes, when the file system
  // cannot hold `num_bytes` more: those of all files together. What is replaced
  // stays until the commit, so it does not make room.
  absl::Status CheckSpace(uint64_t num_bytes);

  // Makes the directory that data files go into, and removes what earlier runs
  // of this conversion left there, except for `kept`, the data files that are
  // complete. `folders` are those that the names of data files have in front,
  // for kFolders: each comes after the one that it is in.
  absl::Status Begin(const absl::flat_hash_set<std::string>& kept = {},
                     const std::vector<std::string>& folders = {});

  // Whether anything was at the path before.
  bool exists() const { return exists_; }

  // Where to create data file `name`, which is ignored for kFile.
  std::string PathOf(absl::string_view name) const;
  // Says that the data file was, or will be, created: it is removed if there is
  // no commit.
  void Created(absl::string_view name);

  // Makes the checkpoint appear. All data files are written, synced and closed.
  // `index_name` and `index` are the file that makes them a checkpoint
  // (.metadata, or the JSON index; none if the name is empty). `digests` are
  // written to `digests_name` unless there are none.
  absl::Status Commit(absl::string_view index_name, absl::string_view index,
                      absl::string_view digests_name,
                      const std::vector<ChunkDigest>& digests);

  // After this, a crash cannot undo the name of the sibling: if it is gone, it
  // has been renamed.
  absl::Status SyncStaging();
  // Cleans up after an earlier run whose checkpoint has appeared, but which did
  // not finish cleaning up.
  absl::Status FinishCommit();
  // Removes what earlier runs left.
  void Discard();
  // Leaves what was made for a run that resumes.
  void Keep() { committed_ = true; }

 private:
  Destination(FileSystem& fs, std::string path, Kind kind)
      : fs_(fs), path_(std::move(path)), kind_(kind) {}

  static absl::StatusOr<std::unique_ptr<Destination>> New(
      FileSystem& fs, absl::string_view path, Kind kind, const OwnFiles& own);
  absl::Status TakeLocks(absl::string_view writer);
  absl::Status EnterDcp(absl::string_view writer);
  absl::Status LockInside(absl::string_view writer);
  absl::StatusOr<std::optional<FileInfo>> WhatIsThere() const;
  absl::Status InspectExisting(bool overwrite);
  absl::Status InspectDirectory(bool overwrite);
  absl::Status BeginDcp(const absl::flat_hash_set<std::string>& kept);
  absl::Status RemoveStaging(const absl::flat_hash_set<std::string>& kept);
  // Whether the data files go to a sibling directory.
  bool IsPlainDirectory() const {
    return kind_ == Kind::kDirectory || kind_ == Kind::kFolders;
  }
  absl::Status WriteSideFile(absl::string_view name, absl::string_view bytes);
  absl::Status CommitDcp(absl::string_view index_name, absl::string_view index);
  absl::Status CommitDirectory();
  absl::Status CommitFile();
  absl::Status SyncNamesIn(absl::string_view directory);
  void RemoveStale();
  absl::Status RemoveCreated();

  FileSystem& fs_;
  const std::string path_;
  const Kind kind_;
  OwnFiles own_;
  std::string id_;  // this run's, or that of the resumed conversion
  absl::flat_hash_set<std::string> own_names_;  // may already be there
  // Next to the path (except for kDcpDirectory), and inside the directory
  // there.
  std::unique_ptr<DestinationLock> lock_beside_;
  std::unique_ptr<DestinationLock> lock_inside_;
  bool exists_ = false;
  bool made_directory_ = false;
  bool committed_ = false;
  std::string staging_;  // where data files go: path_, or a sibling
  absl::flat_hash_set<std::string> taken_;  // names in a DCP directory
  std::vector<std::string> stale_;          // of the checkpoint to be replaced
  std::vector<std::string> created_;        // by us, in staging_
  std::vector<std::string> folders_;        // the same
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_WRITE_DESTINATION_H_
