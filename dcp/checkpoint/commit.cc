// The protocol, step by step. "Synced" means that a crash after the step
// cannot undo it.
//
// A DCP directory:
//   1. make the directory, sync its parent
//   2. write the data files under names that no file there has; sync each
//   3. write .digests-<save id>, sync it
//   4. write .metadata.tmp, sync it; sync the directory, so that every name
//      is there before the index refers to it
//   5. rename .metadata.tmp to .metadata; sync the directory: the commit
//   6. remove what the replaced index referred to, and digests of other saves
// A crash before the rename of step 5 leaves the old index and every file it
// names; after it, the new ones. Files left behind are removed by the next
// save to the directory, which knows them by their names.
//
// A directory of safetensors, which has no single index to rename:
//   1. remove and make the sibling .<name>.partial
//   2. write and sync everything in it, sync it
//   3. rename it to the destination, or exchange it with what is there; sync
//      the parent: the commit
//   4. remove what is now under the sibling's name
//
// A file: likewise with the sibling file .<name>.partial and a rename over.
//
// A conversion with an id has the sibling .<name>.<id>.partial: what is there
// is its own. After a kill it removes of its data files what is not complete
// and goes on with step 2.
#include "dcp/checkpoint/commit.h"

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
#include "dcp/checkpoint/dcp_opener.h"

namespace dcp {
namespace {

// "__{rank}_{i}.distcp": what a DCP writer, ours or PyTorch's, calls a data
// file.
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

// "__{rank}.metadata": the index of one rank, which would outlive the data it
// names.
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

// Of an id in a name: enough to tell apart the conversions of one place, not
// so many that a name of usual length becomes too long.
constexpr size_t kIdBytes = 13;

std::string WithoutTrailingSlashes(absl::string_view path) {
  while (path.size() > 1 && absl::EndsWith(path, "/")) path.remove_suffix(1);
  return std::string(path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Destination>> Destination::Plan(
    FileSystem& fs, absl::string_view path, Kind kind, bool overwrite,
    const OwnFiles& own) {
  if (path.empty()) {
    return absl::InvalidArgumentError("the destination has no name");
  }
  std::unique_ptr<Destination> destination(
      new Destination(fs, WithoutTrailingSlashes(path), kind));
  destination->staging_ = StagingOf(path, kind, own.id);
  destination->own_ = own;
  if (kind == Kind::kDcpDirectory && own.ran_before) {
    destination->own_names_.insert(own.names.begin(), own.names.end());
    destination->own_names_.insert(DigestsName(own.id));
    destination->own_names_.insert(absl::StrCat(kDcpMetadataName, ".tmp"));
  }
  DCP_RETURN_IF_ERROR(destination->InspectExisting(overwrite));
  return destination;
}

std::string Destination::StagingOf(absl::string_view path, Kind kind,
                                   absl::string_view id) {
  const std::string plain = WithoutTrailingSlashes(path);
  if (kind == Kind::kDcpDirectory) return plain;
  return JoinPath(ParentDirectory(plain),
                  absl::StrCat(".", BaseName(plain), id.empty() ? "" : ".",
                               id.substr(0, kIdBytes), ".partial"));
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
  if (!committed_) Abandon();
}

absl::Status Destination::InspectExisting(bool overwrite) {
  const absl::StatusOr<FileInfo> info = fs_.Stat(path_);
  if (absl::IsNotFound(info.status())) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(info.status());
  exists_ = true;
  const bool is_directory = info->kind == FileKind::kDirectory;
  if (is_directory == (kind_ == Kind::kFile)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, " exists and is ", is_directory ? "a directory" : "no directory",
        "; the output would be ", is_directory ? "a file" : "a directory"));
  }
  if (is_directory) return InspectDirectory(overwrite);
  if (!overwrite) {
    return absl::AlreadyExistsError(
        absl::StrCat(path_, " exists; --overwrite replaces it"));
  }
  return absl::OkStatus();
}

absl::Status Destination::InspectDirectory(bool overwrite) {
  DCP_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, fs_.List(path_));
  entries.erase(std::remove_if(entries.begin(), entries.end(),
                               [this](const DirectoryEntry& entry) {
                                 return own_names_.contains(entry.name);
                               }),
                entries.end());
  if (entries.empty()) return absl::OkStatus();
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
    if (entry.kind != FileKind::kDirectory &&
        BelongsToSafetensors(entry.name)) {
      stale_.push_back(entry.name);
    } else {
      foreign.push_back(entry.name);
    }
  }
  if (foreign.empty()) return absl::OkStatus();
  const size_t num_foreign = foreign.size();
  foreign.resize(std::min<size_t>(num_foreign, 5));
  return absl::FailedPreconditionError(absl::StrCat(
      path_, " holds ", num_foreign,
      " files that are not part of a safetensors checkpoint and would be "
      "lost: ",
      absl::StrJoin(foreign, ", "), num_foreign > 5 ? ", ..." : ""));
}

void Destination::FindStale(const std::vector<DirectoryEntry>& entries) {
  for (const DirectoryEntry& entry : entries) {
    taken_.insert(entry.name);
    if (entry.kind == FileKind::kDirectory) continue;
    if (IsDataFileName(entry.name) || IsDigestsName(entry.name) ||
        IsRankIndexName(entry.name)) {
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
  if (exists_) {
    made_directory_ = own_.made_directory;
    return own_.ran_before ? RemoveStaging(kept) : absl::OkStatus();
  }
  DCP_RETURN_IF_ERROR(fs_.MakeDirectory(staging_));
  made_directory_ = true;
  return fs_.SyncDirectory(ParentDirectory(staging_));
}

// What earlier runs of this conversion left, but for `kept`. The removal is
// synced: a crash that undid it could bring a half-written file back under the
// name of one that has been recorded as complete since.
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
  const absl::Status removed = fs_.Remove(path);  // of an interrupted run
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

absl::Status Destination::CommitDcp(absl::string_view index_name,
                                    absl::string_view index) {
  const std::string temporary_name = absl::StrCat(index_name, ".tmp");
  DCP_RETURN_IF_ERROR(WriteSideFile(temporary_name, index));
  DCP_RETURN_IF_ERROR(fs_.SyncDirectory(staging_));
  DCP_RETURN_IF_ERROR(fs_.Rename(JoinPath(staging_, temporary_name),
                                 JoinPath(staging_, index_name)));
  // From here on the new index may be what a crash leaves: nothing it names
  // is removed any more, even if the sync fails.
  committed_ = true;
  DCP_RETURN_IF_ERROR(fs_.SyncDirectory(staging_));
  RemoveStale();
  return absl::OkStatus();
}

absl::Status Destination::CommitDirectory() {
  DCP_RETURN_IF_ERROR(fs_.SyncDirectory(staging_));
  const std::string parent = ParentDirectory(path_);
  if (!exists_) {
    DCP_RETURN_IF_ERROR(fs_.RenameExclusive(staging_, path_));
    committed_ = true;
    return fs_.SyncDirectory(parent);
  }
  DCP_RETURN_IF_ERROR(fs_.Exchange(staging_, path_));
  committed_ = true;
  DCP_RETURN_IF_ERROR(fs_.SyncDirectory(parent));
  RemoveStale();
  return absl::OkStatus();
}

absl::Status Destination::CommitFile() {
  DCP_RETURN_IF_ERROR(exists_ ? fs_.Rename(staging_, path_)
                              : fs_.RenameExclusive(staging_, path_));
  committed_ = true;
  return fs_.SyncDirectory(ParentDirectory(path_));
}

absl::Status Destination::SyncStaging() {
  return fs_.SyncDirectory(
      kind_ == Kind::kDcpDirectory ? staging_ : ParentDirectory(staging_));
}

absl::Status Destination::FinishCommit() {
  committed_ = true;
  const bool is_dcp = kind_ == Kind::kDcpDirectory;
  DCP_RETURN_IF_ERROR(
      fs_.SyncDirectory(is_dcp ? path_ : ParentDirectory(path_)));
  if (is_dcp) {
    RemoveStale();
    return absl::OkStatus();
  }
  // The replaced checkpoint, where it was exchanged.
  return kind_ == Kind::kDirectory ? RemoveStaging({}) : absl::OkStatus();
}

void Destination::Discard() {
  absl::Status status = RemoveStaging({});
  if (kind_ == Kind::kDcpDirectory && own_.made_directory) {
    const absl::Status removed = fs_.RemoveDirectory(path_);
    if (!absl::IsNotFound(removed)) status.Update(removed);
  }
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=unfinished_output_left path=" << staging_
                      << " error=" << status.message();
  }
}

// The new checkpoint is durable; what cannot be removed is only litter.
void Destination::RemoveStale() {
  absl::Status status;
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

void Destination::Abandon() {
  absl::Status status;
  for (const std::string& path : created_) {
    const absl::Status removed = fs_.Remove(path);
    if (!absl::IsNotFound(removed)) status.Update(removed);
  }
  if (made_directory_) status.Update(fs_.RemoveDirectory(staging_));
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=unfinished_output_left path=" << staging_
                      << " error=" << status.message();
  }
}

}  // namespace dcp
