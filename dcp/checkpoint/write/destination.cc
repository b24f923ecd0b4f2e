// The protocol, step by step. "Synced" means that a crash after the step cannot
// undo it.
//
// The lock. A writer holds the lock file of its destination from before it
// looks at what is there until it has removed what it had to remove:
//
//   DCP directory   <path>/.writer.lock, after making the directory
//   plain directory .<name>.lock next to it; also, because a DCP writer may be
//                   in it, the .writer.lock of a directory that is replaced
//   file            .<name>.lock next to it
//
// So the lock file lies where the writer makes its files, whatever path and
// machine the writer uses. Nobody waits: the second writer is told who the
// first is. The lock is taken with flock and ends with the process. The note on
// locks in dcp/io/posix_file_system.cc says how the file is removed without a
// race, and what happens on a file system without flock. The lock need not be
// durable: after a crash of the machine there is no writer left. In a save by
// several ranks only the first rank takes the lock. Readers ignore lock files.
//
// Names. Everything that a run makes has the run's id in its name, so that a
// run publishes only its own files even if a user removes a lock file. The data
// files of DCP are the exception: their names are chosen under the lock, and
// they are created only where no file exists. The holder of the lock removes
// what dead runs left: next to the destination, everything with an id and
// ".tmp"; in a DCP directory without an index, the data files, digests and
// temporary indexes, if the lock file says that the dead writer had made all of
// them. A conversion that can resume later names its file ".partial" and
// removes it itself.
//
// A DCP directory:
//   1. make the directory, take the lock, sync the directory's parent
//   2. write the data files under names that no file there has; sync each
//   3. write .digests-<save id>, sync it
//   4. write .metadata.<id>.tmp, sync it; sync the directory, so that every
//      name is there before the index refers to it
//   5. rename .metadata.<id>.tmp to .metadata; sync the directory: the commit
//   6. remove what the replaced index referred to, and digests of other saves
//   7. remove the lock file and end the lock
// A crash before the rename of step 5 leaves the old index and every file that
// it names; a crash after it leaves the new ones. Files left behind are removed
// by the next save to the directory, which recognises their names.
//
// A directory of safetensors, which has no single index to rename:
//   1. take the locks; make the sibling .<name>.<id>.tmp
//   2. write and sync everything in it, sync it
//   3. rename it to the destination, or exchange it with what is there; sync
//      the parent: the commit
//   4. remove what is now under the sibling's name
//   5. remove the lock files and end the locks
//
// A file: the same with the sibling file .<name>.<id>.tmp, which is renamed
// over the destination.
//
// A conversion that can resume has the sibling .<name>.<id>.partial, whose
// contents are its own. After a kill it takes the lock again, removes those of
// its data files that are not complete, and continues with step 2.
#include "dcp/checkpoint/write/destination.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/open/dcp_opener.h"
#include "dcp/checkpoint/write/companion_files.h"
#include "dcp/checkpoint/write/save_id.h"

namespace dcp {
namespace {

// "__{rank}_{i}.distcp": the name of a DCP writer's data file, ours or
// PyTorch's.
bool IsDataFileName(absl::string_view name) {
  uint64_t number;
  if (!absl::ConsumePrefix(&name, "__") ||
      !absl::ConsumeSuffix(&name, ".distcp")) {
    return false;
  }
  const size_t middle = name.find('_');
  return middle != absl::string_view::npos &&
         absl::SimpleAtoi(name.substr(0, middle), &number) &&
         absl::SimpleAtoi(name.substr(middle + 1), &number);
}

// "__{rank}.metadata": the index of one rank, which would outlive the data that
// it names.
bool IsRankIndexName(absl::string_view name) {
  uint64_t rank;
  return absl::ConsumePrefix(&name, "__") &&
         absl::ConsumeSuffix(&name, ".metadata") &&
         absl::SimpleAtoi(name, &rank);
}

bool BelongsToSafetensors(absl::string_view name) {
  return absl::EndsWith(name, ".safetensors") ||
         absl::EndsWith(name, ".safetensors.index.json") || IsDigestsName(name);
}

// ".metadata.<id>.tmp", or ".metadata.tmp" as other writers name it.
bool IsTemporaryIndexName(absl::string_view name) {
  return absl::ConsumePrefix(&name, kDcpMetadataName) &&
         absl::StartsWith(name, ".") && absl::EndsWith(name, ".tmp");
}

// How much of an id goes into a name: enough to tell conversions at one place
// apart, but not so much that names of usual length become too long.
constexpr size_t kIdBytes = 13;

std::string ShortId(absl::string_view id) {
  return std::string(id.substr(0, kIdBytes));
}

// ".<base>.<id>.tmp", or ".<base>.partial" as earlier versions named it.
bool IsLeftBeside(absl::string_view name, absl::string_view base) {
  if (!absl::ConsumePrefix(&name, ".") || !absl::ConsumePrefix(&name, base) ||
      !absl::ConsumePrefix(&name, ".")) {
    return false;
  }
  if (name == "partial") return true;
  return absl::ConsumeSuffix(&name, ".tmp") && name.size() == kIdBytes &&
         name.find('.') == absl::string_view::npos;
}

absl::Status NoParent(absl::string_view path) {
  return absl::NotFoundError(absl::StrCat("there is no directory ",
                                          ParentDirectory(path), " for ", path,
                                          "; make it first"));
}

// How often a directory may appear and disappear between two looks at it.
constexpr int kMaxAttempts = 100;

std::string WithoutTrailingSlashes(absl::string_view path) {
  while (path.size() > 1 && absl::EndsWith(path, "/")) path.remove_suffix(1);
  return std::string(path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Destination>> Destination::New(
    FileSystem& fs, absl::string_view path, Kind kind, const OwnFiles& own) {
  if (path.empty()) {
    return absl::InvalidArgumentError("the destination has no name");
  }
  std::unique_ptr<Destination> destination(
      new Destination(fs, WithoutTrailingSlashes(path), kind));
  destination->own_ = own;
  destination->id_ = own.id.empty() ? NewSaveId() : own.id;
  destination->staging_ = StagingOf(path, kind, own.id);
  if (own.id.empty() && kind != Kind::kDcpDirectory) {
    destination->staging_ =
        JoinPath(ParentDirectory(destination->path_),
                 absl::StrCat(".", BaseName(destination->path_), ".",
                              ShortId(destination->id_), ".tmp"));
  }
  if (kind == Kind::kDcpDirectory && own.ran_before) {
    destination->own_names_.insert(own.names.begin(), own.names.end());
    destination->own_names_.insert(DigestsName(own.id));
    destination->own_names_.insert(destination->TemporaryIndexName());
    // The name that an earlier version gave it.
    destination->own_names_.insert(absl::StrCat(kDcpMetadataName, ".tmp"));
  }
  return destination;
}

absl::StatusOr<std::unique_ptr<Destination>> Destination::Plan(
    FileSystem& fs, absl::string_view path, Kind kind, bool overwrite,
    const OwnFiles& own, absl::string_view writer) {
  DCP_ASSIGN_OR_RETURN(std::unique_ptr<Destination> destination,
                       New(fs, path, kind, own));
  // Before a lock file is tried where it may be impossible, as next to a
  // device.
  DCP_RETURN_IF_ERROR(destination->WhatIsThere().status());
  DCP_RETURN_IF_ERROR(destination->TakeLocks(writer));
  DCP_RETURN_IF_ERROR(destination->InspectExisting(overwrite));
  return destination;
}

absl::StatusOr<std::unique_ptr<Destination>> Destination::Look(
    FileSystem& fs, absl::string_view path, Kind kind, bool overwrite,
    const OwnFiles& own) {
  OwnFiles copied;
  copied.companions = own.companions;
  DCP_ASSIGN_OR_RETURN(std::unique_ptr<Destination> destination,
                       New(fs, path, kind, copied));
  if (absl::IsNotFound(fs.Stat(ParentDirectory(path)).status())) {
    return NoParent(path);
  }
  DCP_RETURN_IF_ERROR(destination->InspectExisting(overwrite));
  destination->committed_ = true;  // nothing is there for it to remove
  return destination;
}

absl::Status Destination::CheckSpace(uint64_t num_bytes) {
  const bool inside =
      kind_ == Kind::kDcpDirectory && (exists_ || made_directory_);
  const std::string directory = inside ? path_ : ParentDirectory(path_);
  DCP_ASSIGN_OR_RETURN(const uint64_t free, fs_.FreeBytes(directory));
  if (num_bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      path_, ": ", num_bytes, " bytes are needed for all files together, ",
      free, " are free on the file system of ", directory,
      exists_ ? "; what is to be replaced stays until the new checkpoint is "
                "complete"
              : "",
      "; make room or choose another destination"));
}

std::string Destination::StagingOf(absl::string_view path, Kind kind,
                                   absl::string_view id) {
  const std::string plain = WithoutTrailingSlashes(path);
  if (kind == Kind::kDcpDirectory) return plain;
  return JoinPath(
      ParentDirectory(plain),
      absl::StrCat(".", BaseName(plain), ".", ShortId(id), ".partial"));
}

std::unique_ptr<Destination> Destination::Attach(FileSystem& fs,
                                                 absl::string_view path) {
  std::unique_ptr<Destination> destination(
      new Destination(fs, WithoutTrailingSlashes(path), Kind::kDcpDirectory));
  destination->staging_ = destination->path_;
  destination->exists_ = true;
  destination->committed_ = true;  // nothing is left for it to remove
  return destination;
}

Destination::~Destination() {
  absl::Status status;
  if (!committed_) status = RemoveCreated();
  lock_inside_.reset();  // its file is in the directory
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

absl::Status Destination::TakeLocks(absl::string_view writer) {
  if (kind_ == Kind::kDcpDirectory) return EnterDcp(writer);
  absl::StatusOr<std::unique_ptr<DestinationLock>> lock =
      DestinationLock::Take(fs_, DestinationLock::BesideOf(path_), writer);
  if (absl::IsNotFound(lock.status())) return NoParent(path_);
  DCP_RETURN_IF_ERROR(lock.status());
  lock_beside_ = *std::move(lock);
  RemoveLeftBeside();
  return kind_ == Kind::kDirectory ? LockInside(writer) : absl::OkStatus();
}

absl::Status Destination::EnterDcp(absl::string_view writer) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    DCP_ASSIGN_OR_RETURN(const std::optional<FileInfo> info, WhatIsThere());
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
      absl::StrCat(path_, " comes and goes: others try to write it too"));
}

// Returns NotFound if the kind is kDcpDirectory and the directory is missing.
absl::Status Destination::LockInside(absl::string_view writer) {
  if (kind_ == Kind::kDirectory) {
    DCP_ASSIGN_OR_RETURN(const std::optional<FileInfo> info, WhatIsThere());
    if (!info.has_value()) return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DestinationLock>> lock =
      DestinationLock::Take(fs_, DestinationLock::InsideOf(path_), writer);
  if (absl::IsNotFound(lock.status()) && kind_ == Kind::kDirectory) {
    return absl::OkStatus();
  }
  DCP_RETURN_IF_ERROR(lock.status());
  lock_inside_ = *std::move(lock);
  return RemoveLeftInside();
}

// Removes the files of a DCP writer that died while it held the lock.
absl::Status Destination::RemoveLeftInside() {
  const DestinationLock::Made& left = lock_inside_->left();
  if (kind_ == Kind::kDcpDirectory && left.directory) made_directory_ = true;
  if (!left.files || own_.ran_before) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs_.List(path_));
  for (const DirectoryEntry& entry : entries) {
    // The writer died after its checkpoint had appeared.
    if (entry.name == kDcpMetadataName || IsRankIndexName(entry.name)) {
      return absl::OkStatus();
    }
  }
  for (const DirectoryEntry& entry : entries) {
    if (IsDataFileName(entry.name) || IsDigestsName(entry.name) ||
        IsTemporaryIndexName(entry.name)) {
      DCP_RETURN_IF_ERROR(fs_.Remove(JoinPath(path_, entry.name)));
    }
  }
  return absl::OkStatus();
}

// Removes the files of writers that died while they held the lock. A file that
// cannot be removed does not affect this run.
void Destination::RemoveLeftBeside() {
  const std::string parent = ParentDirectory(path_);
  const absl::StatusOr<std::vector<DirectoryEntry>> entries = fs_.List(parent);
  if (!entries.ok()) return;
  absl::Status status;
  for (const DirectoryEntry& entry : *entries) {
    if (!IsLeftBeside(entry.name, BaseName(path_))) continue;
    const std::string left = JoinPath(parent, entry.name);
    if (entry.kind != FileKind::kDirectory) {
      status.Update(fs_.Remove(left));
      continue;
    }
    const absl::StatusOr<std::vector<DirectoryEntry>> inside = fs_.List(left);
    if (!inside.ok()) continue;
    for (const DirectoryEntry& file : *inside) {
      // It may be the replaced directory, into which a user has put files
      // since.
      if (BelongsToSafetensors(file.name) || IsCompanionName(file.name) ||
          file.name == kLockName) {
        status.Update(fs_.Remove(JoinPath(left, file.name)));
      }
    }
    status.Update(fs_.RemoveDirectory(left));
  }
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=unfinished_output_left path=" << path_
                      << " error=" << status.message();
  }
}

// What is at the path, if its kind may be replaced; nullopt if nothing is
// there.
absl::StatusOr<std::optional<FileInfo>> Destination::WhatIsThere() {
  const absl::StatusOr<FileInfo> info = fs_.Stat(path_);
  if (absl::IsNotFound(info.status())) return std::nullopt;
  DCP_RETURN_IF_ERROR(info.status());
  if (info->kind == FileKind::kOther) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_,
        " is a pipe, a socket or a device; a checkpoint is written beside its "
        "name and renamed, which would replace it: name a file"));
  }
  if (info->kind == FileKind::kSymlink &&
      (kind_ != Kind::kDcpDirectory || !fs_.List(path_).ok())) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, " is a symbolic link",
        kind_ == Kind::kDcpDirectory ? " that leads to no directory"
                                     : ", which the output would replace",
        "; name what it leads to, or remove it"));
  }
  const bool is_directory = info->kind != FileKind::kFile;
  if (is_directory == (kind_ == Kind::kFile)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, " exists and is ", is_directory ? "a directory" : "no directory",
        "; the output would be ", is_directory ? "a file" : "a directory"));
  }
  return *info;
}

absl::Status Destination::InspectExisting(bool overwrite) {
  DCP_ASSIGN_OR_RETURN(const std::optional<FileInfo> info, WhatIsThere());
  if (!info.has_value()) return absl::OkStatus();
  exists_ = !made_directory_;
  return kind_ == Kind::kFile ? InspectFile(*info, overwrite)
                              : InspectDirectory(overwrite);
}

absl::Status Destination::InspectFile(const FileInfo& info, bool overwrite) {
  if (!overwrite) {
    return absl::AlreadyExistsError(
        absl::StrCat(path_, " exists; --overwrite replaces it"));
  }
  if (info.size == 0) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(const bool is_ours, IsCheckpointFile(fs_, path_));
  if (is_ours) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path_,
      " begins like neither a safetensors nor a torch.save file; only a "
      "checkpoint is replaced: remove it, or choose another name"));
}

absl::Status Destination::InspectDirectory(bool overwrite) {
  DCP_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, fs_.List(path_));
  entries.erase(std::remove_if(entries.begin(), entries.end(),
                               [this](const DirectoryEntry& entry) {
                                 return entry.name == kLockName ||
                                        own_names_.contains(entry.name);
                               }),
                entries.end());
  if (lock_beside_ != nullptr && lock_inside_ == nullptr) {
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
  if (!overwrite) {
    return absl::AlreadyExistsError(absl::StrCat(
        path_,
        " exists and is not empty; --overwrite replaces the checkpoint "
        "in it"));
  }
  if (kind_ == Kind::kDcpDirectory) {
    FindStale(entries);
    return absl::OkStatus();
  }
  std::vector<std::string> foreign;
  for (const DirectoryEntry& entry : entries) {
    if (entry.kind != FileKind::kDirectory && IsReplaced(entry.name)) {
      stale_.push_back(entry.name);
    } else {
      foreign.push_back(entry.name);
    }
  }
  if (foreign.empty()) return absl::OkStatus();
  const size_t num_foreign = foreign.size();
  foreign.resize(std::min<size_t>(num_foreign, 5));
  return absl::FailedPreconditionError(absl::StrCat(
      path_, " holds ", num_foreign == 1 ? "a file" : "files",
      " that the new safetensors checkpoint does not replace and that would be "
      "lost: ",
      absl::StrJoin(foreign, ", "), num_foreign > 5 ? ", ..." : "", "; move ",
      num_foreign == 1 ? "it" : "them",
      " away, or choose another destination"));
}

// Whether a file of the replaced directory belongs to the old checkpoint. The
// old config and tokenizer do only where the new checkpoint brings its own.
bool Destination::IsReplaced(absl::string_view name) const {
  if (BelongsToSafetensors(name)) return true;
  for (const std::vector<std::string>* names :
       {&own_.names, &own_.companions}) {
    if (std::find(names->begin(), names->end(), name) != names->end()) {
      return true;
    }
  }
  return false;
}

// Model files next to a DCP checkpoint are an export of it, which is not
// replaced. Without a DCP index they are the old checkpoint.
void Destination::FindStale(const std::vector<DirectoryEntry>& entries) {
  const bool is_dcp = std::any_of(
      entries.begin(), entries.end(), [](const DirectoryEntry& entry) {
        return entry.name == kDcpMetadataName || IsRankIndexName(entry.name);
      });
  for (const DirectoryEntry& entry : entries) {
    taken_.insert(entry.name);
    if (entry.kind == FileKind::kDirectory) continue;
    if (IsDataFileName(entry.name) || IsDigestsName(entry.name) ||
        IsRankIndexName(entry.name) || IsTemporaryIndexName(entry.name) ||
        (!is_dcp && BelongsToSafetensors(entry.name))) {
      stale_.push_back(entry.name);
    }
  }
}

std::string Destination::NextDataFileName(int64_t rank) {
  for (uint64_t i = 0;; ++i) {
    std::string name = absl::StrCat("__", rank, "_", i, ".distcp");
    if (taken_.insert(name).second) return name;
  }
}

absl::Status Destination::Begin(const absl::flat_hash_set<std::string>& kept) {
  for (const std::string& name : kept) Created(name);
  if (kind_ == Kind::kDcpDirectory) return BeginDcp(kept);
  DCP_RETURN_IF_ERROR(RemoveStaging(kept));
  if (kind_ == Kind::kFile) return absl::OkStatus();
  made_directory_ = true;
  return kept.empty() ? fs_.MakeDirectory(staging_) : absl::OkStatus();
}

absl::Status Destination::BeginDcp(
    const absl::flat_hash_set<std::string>& kept) {
  made_directory_ = made_directory_ || own_.made_directory;
  if (own_.ran_before) DCP_RETURN_IF_ERROR(RemoveStaging(kept));
  return made_directory_ ? fs_.SyncDirectory(ParentDirectory(path_))
                         : absl::OkStatus();
}

// Removes what earlier runs of this conversion left, except for `kept`. The
// removal is synced: a crash that undid it could bring an incomplete file back
// under the name of one that has since been recorded as complete.
absl::Status Destination::RemoveStaging(
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

std::string Destination::PathOf(absl::string_view name) const {
  return kind_ == Kind::kFile ? staging_ : JoinPath(staging_, name);
}

void Destination::Created(absl::string_view name) {
  created_.push_back(PathOf(name));
}

absl::Status Destination::WriteSideFile(absl::string_view name,
                                        absl::string_view bytes) {
  const std::string path = JoinPath(staging_, name);
  const absl::Status removed = fs_.Remove(path);  // left by an interrupted run
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  created_.push_back(path);
  return WriteFile(fs_, path, bytes);
}

absl::Status Destination::Commit(absl::string_view index_name,
                                 absl::string_view index,
                                 absl::string_view digests_name,
                                 const std::vector<ChunkDigest>& digests) {
  if (kind_ == Kind::kFile) return CommitFile();
  if (!digests.empty()) {
    DCP_RETURN_IF_ERROR(WriteSideFile(digests_name, WriteDigests(digests)));
  }
  if (kind_ == Kind::kDcpDirectory) return CommitDcp(index_name, index);
  if (!index_name.empty()) {
    DCP_RETURN_IF_ERROR(WriteSideFile(index_name, index));
  }
  return CommitDirectory();
}

std::string Destination::TemporaryIndexName() const {
  return absl::StrCat(kDcpMetadataName, ".", ShortId(id_), ".tmp");
}

absl::Status Destination::CommitDcp(absl::string_view index_name,
                                    absl::string_view index) {
  const std::string temporary_name = TemporaryIndexName();
  DCP_RETURN_IF_ERROR(WriteSideFile(temporary_name, index));
  DCP_RETURN_IF_ERROR(fs_.SyncDirectory(staging_));
  DCP_RETURN_IF_ERROR(fs_.Rename(JoinPath(staging_, temporary_name),
                                 JoinPath(staging_, index_name)));
  // From here on, a crash may leave the new index in place: nothing that it
  // names is removed any more, even if the sync fails.
  committed_ = true;
  DCP_RETURN_IF_ERROR(SyncNamesIn(staging_));
  RemoveStale();
  return absl::OkStatus();
}

absl::Status Destination::CommitDirectory() {
  DCP_RETURN_IF_ERROR(fs_.SyncDirectory(staging_));
  const std::string parent = ParentDirectory(path_);
  if (!exists_) {
    DCP_RETURN_IF_ERROR(fs_.RenameExclusive(staging_, path_));
    committed_ = true;
    return SyncNamesIn(parent);
  }
  DCP_RETURN_IF_ERROR(fs_.Exchange(staging_, path_));
  committed_ = true;
  if (lock_inside_ != nullptr) {
    lock_inside_->MovedTo(DestinationLock::InsideOf(staging_));
  }
  DCP_RETURN_IF_ERROR(SyncNamesIn(parent));
  RemoveStale();
  return absl::OkStatus();
}

absl::Status Destination::CommitFile() {
  DCP_RETURN_IF_ERROR(exists_ ? fs_.Rename(staging_, path_)
                              : fs_.RenameExclusive(staging_, path_));
  committed_ = true;
  return SyncNamesIn(ParentDirectory(path_));
}

absl::Status Destination::SyncNamesIn(absl::string_view directory) {
  return Annotate(fs_.SyncDirectory(directory), path_,
                  " was written, but a crash could undo it; check its disk and "
                  "write it again");
}

absl::Status Destination::SyncStaging() {
  return fs_.SyncDirectory(
      kind_ == Kind::kDcpDirectory ? staging_ : ParentDirectory(staging_));
}

absl::Status Destination::FinishCommit() {
  committed_ = true;
  const bool is_dcp = kind_ == Kind::kDcpDirectory;
  DCP_RETURN_IF_ERROR(SyncNamesIn(is_dcp ? path_ : ParentDirectory(path_)));
  if (is_dcp) {
    RemoveStale();
    return absl::OkStatus();
  }
  // After an exchange, removes the replaced checkpoint.
  return kind_ == Kind::kDirectory ? RemoveStaging({}) : absl::OkStatus();
}

void Destination::Discard() {
  const absl::Status status = RemoveStaging({});
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=unfinished_output_left path=" << staging_
                      << " error=" << status.message();
  }
  if (kind_ == Kind::kDcpDirectory && own_.made_directory) {
    made_directory_ = true;
  }
}

// The new checkpoint is durable; what cannot be removed is only litter.
void Destination::RemoveStale() {
  absl::Status status;
  if (kind_ == Kind::kDirectory) lock_inside_.reset();
  for (const std::string& name : stale_) {
    const std::string path = JoinPath(staging_, name);
    if (std::find(created_.begin(), created_.end(), path) != created_.end() &&
        kind_ == Kind::kDcpDirectory) {
      continue;
    }
    status.Update(fs_.Remove(path));
  }
  if (kind_ == Kind::kDirectory) status.Update(fs_.RemoveDirectory(staging_));
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=stale_files_left path=" << path_
                      << " error=" << status.message();
  }
}

absl::Status Destination::RemoveCreated() {
  absl::Status status;
  for (const std::string& path : created_) {
    const absl::Status removed = fs_.Remove(path);
    if (!absl::IsNotFound(removed)) status.Update(removed);
  }
  return status;
}

}  // namespace dcp
