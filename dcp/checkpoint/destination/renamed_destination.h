// SPDX-License-Identifier: Apache-2.0
// RenamedDestination: a Destination on a file system. Each kind of destination
// has a way of its own:
//
//   DCP directory   data files go into the directory under names that nothing
//                   there has; renaming .metadata is the commit; the replaced
//                   checkpoint's files are removed afterwards
//   plain directory a sibling directory is filled, then renamed or exchanged;
//                   one with folders replaces only an empty directory
//   single file     a sibling file is written, then renamed over
//
// Only one writer at a time works on a destination: it holds a lock from Plan
// until it is destroyed. All files that it makes have names of their own; a
// conversion that can resume after a kill (see OwnFiles) finds them again.
//
// renamed_destination.cc describes the protocol. Used by one thread.
#ifndef DCP_CHECKPOINT_DESTINATION_RENAMED_DESTINATION_H_
#define DCP_CHECKPOINT_DESTINATION_RENAMED_DESTINATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/destination_lock.h"
#include "dcp/checkpoint/destination/destination_path.h"
#include "dcp/checkpoint/destination/replaceable.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/io/file_system.h"

namespace dcp {

class RenamedDestination final : public Destination {
 public:
  // As in Destination. Plan locks the destination (see DestinationLock), after
  // creating a DCP directory if there is none, and removes the files that dead
  // writers left.
  static absl::StatusOr<std::unique_ptr<Destination>> Plan(
      FileSystem& fs, const DestinationPath& path, Kind kind, bool overwrite,
      const OwnFiles& own, absl::string_view writer);
  static absl::StatusOr<std::unique_ptr<Destination>> Look(
      FileSystem& fs, const DestinationPath& path, Kind kind, bool overwrite,
      const OwnFiles& own);
  static std::unique_ptr<Destination> Attach(FileSystem& fs,
                                             const DestinationPath& path);

  ~RenamedDestination() override;

  std::string NextDataFileName(int64_t rank) override;
  absl::Status CheckSpace(uint64_t num_bytes) override;
  absl::Status Begin(const absl::flat_hash_set<std::string>& kept,
                     const std::vector<std::string>& folders) override;
  bool exists() const override { return exists_; }
  std::string FilePath(absl::string_view name) const override;
  absl::StatusOr<File> CreateFile(absl::string_view name,
                                  const DataFile& file) override;
  void Created(absl::string_view name) override;
  absl::Status Commit(absl::string_view index_name, absl::string_view index,
                      absl::string_view digests_name,
                      const std::vector<ChunkDigest>& digests) override;
  absl::Status SyncStaging() override;
  absl::Status FinishCommit() override;
  void Discard() override;
  void Keep() override { committed_ = true; }

 private:
  RenamedDestination(FileSystem& fs, const DestinationPath& path, Kind kind)
      : fs_(fs), path_(path.path()), parent_(path.parent()), kind_(kind) {}

  static absl::StatusOr<std::unique_ptr<RenamedDestination>> New(
      FileSystem& fs, const DestinationPath& path, Kind kind,
      const OwnFiles& own);
  absl::Status TakeLocks(absl::string_view writer);
  absl::Status EnterDcp(absl::string_view writer);
  absl::Status LockInside(absl::string_view writer);
  absl::StatusOr<std::optional<FileInfo>> FindExisting() const;
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
  const std::string parent_;  // the directory that it is in
  const Kind kind_;
  OwnFiles own_;
  std::string id_;  // from this run, or from the resumed conversion
  absl::flat_hash_set<std::string> own_names_;  // may already be there
  // Next to the path (except for kDcpDirectory), and inside the directory
  // there.
  std::unique_ptr<DestinationLock> sibling_lock_;
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

#endif  // DCP_CHECKPOINT_DESTINATION_RENAMED_DESTINATION_H_
