// SPDX-License-Identifier: Apache-2.0
// The protocol, step by step. "Synced" means that a crash after the step cannot
// undo it.
//
// The lock. A writer holds the destination's lock file from before it first
// inspects the destination until it has removed everything it had to remove:
//
//   DCP directory   <path>/.writer.lock, after making the directory
//   plain directory .<name>.lock next to it; also, because a DCP writer may be
//                   in it, the .writer.lock of a directory that is replaced
//   file            .<name>.lock next to it
//
// So the lock file lies next to the writer's files, and all writers find it,
// whatever path or machine they use. Nobody waits: the second writer is told
// who the first is. The lock is taken with flock and ends with the process. The
// note on locks in dcp/io/posix_file_system.cc says how the file is removed
// without a race, and what happens on a file system without flock. The lock
// need not be durable, because a crash of the machine also ends the writer. In
// a save by several ranks only the first rank takes the lock. Readers ignore
// lock files.
//
// Names. All files that a run makes have the run's id in their names, so that a
// run publishes only its own files even if a user removes a lock file. DCP's
// data files are the exception: their names are chosen under the lock, and they
// are created only where no file exists. The lock's holder removes the files
// that dead runs left: next to the destination, everything with an id and
// ".tmp"; in a DCP directory without an index, the data files, digests and
// temporary indexes, if the lock file says that the dead writer had made all of
// them. A conversion that can resume later names the file ".partial" and
// removes it itself.
//
// A DCP directory:
//   1. make the directory, take the lock, sync the directory's parent
//   2. write the data files under names that no file there has; sync each
//   3. write .digests-<save id>, which has that of .metadata too, sync it
//   4. write .metadata.<id>.tmp, sync it; sync the directory, so that every
//      name is there before the index refers to it
//   5. rename .metadata.<id>.tmp to .metadata; sync the directory: the commit
//   6. remove the files of the replaced index, and digests of other saves
//   7. remove the lock file and end the lock
// A crash before step 5 renames the index leaves the old index and every file
// that it names; a crash after it leaves the new ones. The next save to the
// directory recognises by their names the files left behind, and removes them.
//
// A directory of safetensors, or with folders, which has no index to rename:
//   1. take the locks; make the sibling .<name>.<id>.tmp
//   2. write and sync everything in it, sync it
//   3. rename it to the destination, or exchange it with the directory there;
//      sync the parent: the commit
//   4. remove the directory that now has the sibling's name
//   5. remove the lock files and end the locks
//
// A file: the same with the sibling file .<name>.<id>.tmp, which is renamed
// over the destination.
//
// A conversion that can resume has the sibling .<name>.<id>.partial, and owns
// the contents. After a kill it takes the lock again, removes the data files
// that are not complete, and continues with step 2.
#include "dcp/checkpoint/destination/renamed_destination.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/log.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/dead_writer.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/destination/folders.h"
#include "dcp/checkpoint/destination/save_id.h"
#include "dcp/checkpoint/formats/dcp_opener.h"

namespace dcp {
namespace {

absl::Status NoParent(const DestinationPath& path) {
  return absl::NotFoundError(absl::StrCat("there is no directory ",
                                          path.parent(), " for ", path.text(),
                                          "; make it first"));
}

// How often a directory may appear and disappear between two looks at it.
constexpr int kMaxAttempts = 100;

}  // namespace

absl::StatusOr<std::unique_ptr<RenamedDestination>> RenamedDestination::New(
    FileSystem& fs, const DestinationPath& path, Kind kind,
    const OwnFiles& own) {
  if (path.text().empty()) {
    return absl::InvalidArgumentError("the destination has no name");
  }
  std::unique_ptr<RenamedDestination> destination(
      new RenamedDestination(fs, path, kind));
  destination->own_ = own;
  destination->id_ = own.id.empty() ? NewSaveId() : own.id;
  destination->staging_ = StagingPath(path.path(), kind, own.id);
  if (own.id.empty() && kind != Kind::kDcpDirectory) {
    destination->staging_ =
        SiblingPath(destination->path_, destination->id_, "tmp");
  }
  if (kind == Kind::kDcpDirectory && own.ran_before) {
    destination->own_names_.insert(own.names.begin(), own.names.end());
    destination->own_names_.insert(DigestsName(own.id));
    destination->own_names_.insert(TemporaryIndexName(destination->id_));
    // An earlier version used this name.
    destination->own_names_.insert(absl::StrCat(kDcpMetadataName, ".tmp"));
  }
  return destination;
}

absl::StatusOr<std::unique_ptr<Destination>> RenamedDestination::Plan(
    FileSystem& fs, const DestinationPath& path, Kind kind, bool overwrite,
    const OwnFiles& own, absl::string_view writer) {
  DCP_ASSIGN_OR_RETURN(std::unique_ptr<RenamedDestination> destination,
                       New(fs, path, kind, own));
  // Comes before the lock file, which may be impossible there, for example next
  // to a device.
  DCP_RETURN_IF_ERROR(destination->FindExisting().status());
  DCP_RETURN_IF_ERROR(destination->TakeLocks(writer));
  DCP_RETURN_IF_ERROR(destination->InspectExisting(overwrite));
  return destination;
}

absl::StatusOr<std::unique_ptr<Destination>> RenamedDestination::Look(
    FileSystem& fs, const DestinationPath& path, Kind kind, bool overwrite,
    const OwnFiles& own) {
  OwnFiles copied = own.ran_before ? own : OwnFiles();
  copied.companions = own.companions;
  DCP_ASSIGN_OR_RETURN(std::unique_ptr<RenamedDestination> destination,
                       New(fs, path, kind, copied));
  if (absl::IsNotFound(fs.Stat(path.parent()).status())) return NoParent(path);
  DCP_RETURN_IF_ERROR(destination->InspectExisting(overwrite));
  destination->committed_ = true;  // the destructor has nothing to remove
  return destination;
}

absl::Status RenamedDestination::CheckSpace(uint64_t num_bytes) {
  const bool inside =
      kind_ == Kind::kDcpDirectory && (exists_ || made_directory_);
  const std::string directory = inside ? path_ : parent_;
  DCP_ASSIGN_OR_RETURN(const uint64_t free, fs_.FreeBytes(directory));
  if (num_bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      path_, ": ", num_bytes, " bytes are needed for all files together, ",
      free, " are free on the file system of ", directory,
      exists_
          ? "; the old checkpoint stays until the new checkpoint is complete"
          : "",
      "; make room or choose another destination"));
}

std::unique_ptr<Destination> RenamedDestination::Attach(
    FileSystem& fs, const DestinationPath& path) {
  std::unique_ptr<RenamedDestination> destination(
      new RenamedDestination(fs, path, Kind::kDcpDirectory));
  destination->staging_ = destination->path_;
  destination->exists_ = true;
  destination->committed_ = true;  // the destructor has nothing to remove
  return destination;
}

RenamedDestination::~RenamedDestination() {
  absl::Status status;
  if (!committed_) status = RemoveCreated();
  lock_inside_.reset();  // the lock file is in the directory
  if (!committed_ && made_directory_) {
    const absl::Status removed = fs_.RemoveDirectory(staging_);
    // Not empty: another writer has entered the directory and will remove it.
    if (!absl::IsNotFound(removed) && !absl::IsFailedPrecondition(removed)) {
      status.Update(removed);
    }
  }
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=unfinished_output_left path=" << staging_
                      << " error=" << status.message();
  }
}

absl::Status RenamedDestination::TakeLocks(absl::string_view writer) {
  if (kind_ == Kind::kDcpDirectory) return EnterDcp(writer);
  absl::StatusOr<std::unique_ptr<DestinationLock>> lock =
      DestinationLock::Take(fs_, DestinationLock::PathNextTo(path_), writer);
  if (absl::IsNotFound(lock.status())) return NoParent(path_);
  DCP_RETURN_IF_ERROR(lock.status());
  sibling_lock_ = *std::move(lock);
  RemoveLeftSiblings(fs_, path_);
  return IsPlainDirectory() ? LockInside(writer) : absl::OkStatus();
}

absl::Status RenamedDestination::EnterDcp(absl::string_view writer) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    DCP_ASSIGN_OR_RETURN(const std::optional<FileInfo> info, FindExisting());
    if (!info.has_value()) {
      const absl::Status made = fs_.MakeDirectory(path_);
      if (absl::IsAlreadyExists(made)) continue;
      if (absl::IsNotFound(made)) return NoParent(path_);
      DCP_RETURN_IF_ERROR(made);
      made_directory_ = true;
    }
    const absl::Status locked = LockInside(writer);
    // In the meantime, whoever made it has given up.
    if (!absl::IsNotFound(locked)) return locked;
    made_directory_ = false;
  }
  return absl::UnavailableError(
      absl::StrCat(path_,
                   " appears and disappears again and again: other programs "
                   "are trying to write it as well"));
}

// Returns NotFound if the kind is kDcpDirectory and the directory is missing.
absl::Status RenamedDestination::LockInside(absl::string_view writer) {
  if (IsPlainDirectory()) {
    DCP_ASSIGN_OR_RETURN(const std::optional<FileInfo> info, FindExisting());
    if (!info.has_value()) return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DestinationLock>> lock =
      DestinationLock::Take(fs_, DestinationLock::PathInside(path_), writer);
  if (absl::IsNotFound(lock.status()) && IsPlainDirectory()) {
    return absl::OkStatus();
  }
  DCP_RETURN_IF_ERROR(lock.status());
  lock_inside_ = *std::move(lock);
  const DestinationLock::Made& left = lock_inside_->left();
  if (kind_ == Kind::kDcpDirectory && left.directory) made_directory_ = true;
  if (!left.files || own_.ran_before) return absl::OkStatus();
  return RemoveLeftInside(fs_, path_);
}

absl::StatusOr<std::optional<FileInfo>> RenamedDestination::FindExisting()
    const {
  return FindReplaceable(fs_, path_, kind_);
}

absl::Status RenamedDestination::InspectExisting(bool overwrite) {
  DCP_RETURN_IF_ERROR(RefuseOtherWorkers(fs_, path_, own_));
  DCP_ASSIGN_OR_RETURN(const std::optional<FileInfo> info, FindExisting());
  if (!info.has_value()) return absl::OkStatus();
  exists_ = !made_directory_;
  if (kind_ != Kind::kFile) return InspectDirectory(overwrite);
  if (!overwrite) {
    return OptionError(absl::StatusCode::kAlreadyExists, path_, " exists; ",
                       OptionName{"overwrite"}, " replaces it");
  }
  return CheckReplaceableFile(fs_, path_, *info);
}

absl::Status RenamedDestination::InspectDirectory(bool overwrite) {
  DCP_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, fs_.List(path_));
  std::erase_if(entries, [this](const DirectoryEntry& entry) {
    return entry.name == kLockName || own_names_.contains(entry.name);
  });
  if (sibling_lock_ != nullptr && lock_inside_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_,
                     " has just been made by another writer; run again when it "
                     "has ended, or choose another destination"));
  }
  if (entries.empty()) {
    if (lock_inside_ != nullptr) {
      lock_inside_->Record(
          {.files = own_.id.empty() && kind_ == Kind::kDcpDirectory,
           .directory = made_directory_});
    }
    return absl::OkStatus();
  }
  if (kind_ == Kind::kFolders) {
    if (own_.has_committed) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat(
        path_,
        " exists and is not empty; a checkpoint with folders replaces nothing: "
        "remove the files there, or choose another destination"));
  }
  if (!overwrite) {
    return OptionError(absl::StatusCode::kAlreadyExists, path_,
                       " exists and is not empty; ", OptionName{"overwrite"},
                       " replaces the checkpoint in it");
  }
  if (kind_ == Kind::kDcpDirectory) {
    for (const DirectoryEntry& entry : entries) taken_.insert(entry.name);
    stale_ = StaleInDcpDirectory(entries);
    return absl::OkStatus();
  }
  std::vector<std::string> brought = own_.names;
  brought.insert(brought.end(), own_.companions.begin(), own_.companions.end());
  DCP_ASSIGN_OR_RETURN(stale_, StaleInDirectory(path_, entries, brought));
  return absl::OkStatus();
}

std::string RenamedDestination::NextDataFileName(int64_t rank) {
  for (uint64_t i = 0;; ++i) {
    const std::string name = DataFileName(rank, i);
    if (taken_.insert(name).second) return name;
  }
}

absl::Status RenamedDestination::Begin(
    const absl::flat_hash_set<std::string>& kept,
    const std::vector<std::string>& folders) {
  for (const std::string& name : kept) Created(name);
  if (kind_ == Kind::kDcpDirectory) return BeginDcp(kept);
  DCP_RETURN_IF_ERROR(RemoveStaging(kept));
  if (kind_ == Kind::kFile) return absl::OkStatus();
  made_directory_ = true;
  if (kept.empty()) DCP_RETURN_IF_ERROR(fs_.MakeDirectory(staging_));
  for (const std::string& folder : folders) {
    folders_.push_back(JoinPath(staging_, folder));
  }
  return MakeFolders(fs_, staging_, folders);
}

absl::Status RenamedDestination::BeginDcp(
    const absl::flat_hash_set<std::string>& kept) {
  made_directory_ = made_directory_ || own_.made_directory;
  if (own_.ran_before) DCP_RETURN_IF_ERROR(RemoveStaging(kept));
  return made_directory_ ? fs_.SyncDirectory(parent_) : absl::OkStatus();
}

// Removes the files that earlier runs of this conversion left, except for
// `kept`. The removal is synced. If a crash could undo it, an incomplete file
// could return under a name that has since been recorded as complete.
absl::Status RenamedDestination::RemoveStaging(
    const absl::flat_hash_set<std::string>& kept) {
  if (kind_ == Kind::kFile) {
    if (!kept.empty()) return absl::OkStatus();
    const absl::Status removed = fs_.Remove(staging_);
    if (absl::IsNotFound(removed)) return absl::OkStatus();
    DCP_RETURN_IF_ERROR(removed);
    return fs_.SyncDirectory(ParentDirectory(staging_));
  }
  const absl::StatusOr<std::vector<DirectoryEntry>> left = fs_.List(staging_);
  if (!left.ok()) return absl::OkStatus();
  if (kind_ == Kind::kFolders) {
    DCP_RETURN_IF_ERROR(RemoveFolders(fs_, staging_, kept));
    return kept.empty() ? SyncStaging() : absl::OkStatus();
  }
  bool has_removed = false;
  for (const DirectoryEntry& entry : *left) {
    if (kept.contains(entry.name)) continue;
    if (kind_ == Kind::kDcpDirectory && !own_names_.contains(entry.name)) {
      continue;
    }
    DCP_RETURN_IF_ERROR(fs_.Remove(JoinPath(staging_, entry.name)));
    has_removed = true;
  }
  if (kind_ == Kind::kDirectory && kept.empty()) {
    DCP_RETURN_IF_ERROR(fs_.RemoveDirectory(staging_));
    return fs_.SyncDirectory(ParentDirectory(staging_));
  }
  return has_removed ? fs_.SyncDirectory(staging_) : absl::OkStatus();
}

std::string RenamedDestination::FilePath(absl::string_view name) const {
  return kind_ == Kind::kFile ? staging_ : JoinPath(staging_, name);
}

absl::StatusOr<File> RenamedDestination::CreateFile(absl::string_view name,
                                                    const DataFile& file) {
  return file.is_shared ? fs_.OpenShared(FilePath(name), file.size, file.direct)
                        : fs_.Create(FilePath(name), file.size, file.direct);
}

void RenamedDestination::Created(absl::string_view name) {
  created_.push_back(FilePath(name));
}

absl::Status RenamedDestination::WriteSideFile(absl::string_view name,
                                               absl::string_view bytes) {
  const std::string path = JoinPath(staging_, name);
  const absl::Status removed = fs_.Remove(path);  // left by an interrupted run
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  created_.push_back(path);
  return WriteFile(fs_, path, bytes);
}

absl::Status RenamedDestination::Commit(
    absl::string_view index_name, absl::string_view index,
    absl::string_view digests_name, const std::vector<ChunkDigest>& digests) {
  if (kind_ == Kind::kFile) return CommitFile();
  if (!digests.empty()) {
    DCP_RETURN_IF_ERROR(WriteSideFile(
        digests_name, DigestsText(kind_, index_name, index, digests)));
  }
  if (kind_ == Kind::kDcpDirectory) return CommitDcp(index_name, index);
  if (!index_name.empty()) {
    DCP_RETURN_IF_ERROR(WriteSideFile(index_name, index));
  }
  return CommitDirectory();
}

absl::Status RenamedDestination::CommitDcp(absl::string_view index_name,
                                           absl::string_view index) {
  const std::string temporary_name = TemporaryIndexName(id_);
  DCP_RETURN_IF_ERROR(WriteSideFile(temporary_name, index));
  DCP_RETURN_IF_ERROR(fs_.SyncDirectory(staging_));
  DCP_RETURN_IF_ERROR(fs_.Rename(JoinPath(staging_, temporary_name),
                                 JoinPath(staging_, index_name)));
  // From here on, a crash may leave the new index: the files it names stay.
  committed_ = true;
  DCP_RETURN_IF_ERROR(SyncNamesIn(staging_));
  RemoveStale();
  return absl::OkStatus();
}

absl::Status RenamedDestination::CommitDirectory() {
  for (const std::string& folder : folders_) {
    DCP_RETURN_IF_ERROR(fs_.SyncDirectory(folder));
  }
  DCP_RETURN_IF_ERROR(fs_.SyncDirectory(staging_));
  if (!exists_) {
    DCP_RETURN_IF_ERROR(fs_.RenameExclusive(staging_, path_));
    committed_ = true;
    return SyncNamesIn(parent_);
  }
  DCP_RETURN_IF_ERROR(fs_.Exchange(staging_, path_));
  committed_ = true;
  if (lock_inside_ != nullptr) {
    lock_inside_->MovedTo(DestinationLock::PathInside(staging_));
  }
  DCP_RETURN_IF_ERROR(SyncNamesIn(parent_));
  RemoveStale();
  return absl::OkStatus();
}

absl::Status RenamedDestination::CommitFile() {
  DCP_RETURN_IF_ERROR(exists_ ? fs_.Rename(staging_, path_)
                              : fs_.RenameExclusive(staging_, path_));
  committed_ = true;
  return SyncNamesIn(parent_);
}

absl::Status RenamedDestination::SyncNamesIn(absl::string_view directory) {
  return Annotate(fs_.SyncDirectory(directory), path_,
                  " was written, but a crash may undo it; check its disk");
}

absl::Status RenamedDestination::SyncStaging() {
  return fs_.SyncDirectory(
      kind_ == Kind::kDcpDirectory ? staging_ : ParentDirectory(staging_));
}

absl::Status RenamedDestination::FinishCommit() {
  committed_ = true;
  const bool is_dcp = kind_ == Kind::kDcpDirectory;
  DCP_RETURN_IF_ERROR(SyncNamesIn(is_dcp ? path_ : parent_));
  if (is_dcp) {
    RemoveStale();
    return absl::OkStatus();
  }
  // After an exchange, removes the replaced checkpoint.
  return IsPlainDirectory() ? RemoveStaging({}) : absl::OkStatus();
}

void RenamedDestination::Discard() {
  const absl::Status status = RemoveStaging({});
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=unfinished_output_left path=" << staging_
                      << " error=" << status.message();
  }
  if (kind_ == Kind::kDcpDirectory && own_.made_directory) {
    made_directory_ = true;
  }
}

// The new checkpoint is durable; files that cannot be removed are only litter.
void RenamedDestination::RemoveStale() {
  absl::Status status;
  if (IsPlainDirectory()) lock_inside_.reset();
  for (const std::string& name : stale_) {
    const std::string path = JoinPath(staging_, name);
    if (std::find(created_.begin(), created_.end(), path) != created_.end() &&
        kind_ == Kind::kDcpDirectory) {
      continue;
    }
    status.Update(fs_.Remove(path));
  }
  if (IsPlainDirectory()) status.Update(fs_.RemoveDirectory(staging_));
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=stale_files_left path=" << path_
                      << " error=" << status.message();
  }
}

absl::Status RenamedDestination::RemoveCreated() {
  absl::Status status;
  for (const std::string& path : created_) {
    const absl::Status removed = fs_.Remove(path);
    if (!absl::IsNotFound(removed)) status.Update(removed);
  }
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder) {
    const absl::Status removed = fs_.RemoveDirectory(*folder);
    if (!absl::IsNotFound(removed)) status.Update(removed);
  }
  return status;
}

}  // namespace dcp
