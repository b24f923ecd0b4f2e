// The protocol. A put is atomic, and a reader that asks after it sees it. An
// upload is invisible until it is finished. Nothing is locked: two writers may
// work at the same time, and one of them commits.
//
// A DCP directory:
//   1. see what .metadata is there, if any
//   2. put data files as __{rank}_{i}.{id}.distcp, a name that no other writer
//      has; each appears when it is complete
//   3. put .digests-<save id>
//   4. put .metadata, on condition that it is still the one of step 1: the
//      commit
//   5. remove what the replaced index named
// A crash before step 4 leaves the old index with all that it names, and
// objects that no index names; one after it leaves the new index. A writer that
// loses step 4 to another removes what it made.
//
// A file: it stays a hidden upload until the commit, which finishes the upload.
// The last writer to finish has its bytes there.
//
// A directory of safetensors, or with folders: all files stay hidden until the
// commit, which publishes the companions, then the weights, and puts the index
// last. It replaces nothing, because a reader that has the old index would
// meet the new files.
//
// What a killed writer leaves is removed by `dcp-convert clean`.
#include "dcp/checkpoint/write/store_destination.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/dcp_opener.h"
#include "dcp/checkpoint/write/destination_names.h"
#include "dcp/checkpoint/write/replaceable.h"
#include "dcp/checkpoint/write/save_id.h"

namespace dcp {

absl::StatusOr<std::unique_ptr<Destination>> StoreDestination::Plan(
    FileSystem& fs, absl::string_view path, Kind kind, bool overwrite,
    const OwnFiles& own) {
  if (path.empty()) {
    return absl::InvalidArgumentError("the destination has no name");
  }
  std::unique_ptr<StoreDestination> destination(
      new StoreDestination(fs, WithoutTrailingSlashes(path), kind));
  destination->id_ = own.id.empty() ? NewSaveId() : own.id;
  DCP_RETURN_IF_ERROR(destination->Inspect(overwrite));
  return destination;
}

std::unique_ptr<Destination> StoreDestination::Attach(FileSystem& fs,
                                                      absl::string_view path) {
  std::unique_ptr<StoreDestination> destination(new StoreDestination(
      fs, WithoutTrailingSlashes(path), Kind::kDcpDirectory));
  destination->committed_ = true;  // nothing is left for it to remove
  return destination;
}

StoreDestination::~StoreDestination() {
  if (!committed_) RemoveCreated();
}

absl::Status StoreDestination::Inspect(bool overwrite) {
  DCP_ASSIGN_OR_RETURN(const std::optional<FileInfo> info,
                       FindReplaceable(fs_, path_, kind_));
  if (!info.has_value()) return absl::OkStatus();
  if (kind_ == Kind::kFile) {
    seen_ = info;
    if (overwrite) return CheckReplaceableFile(fs_, path_, *info);
    return absl::AlreadyExistsError(
        absl::StrCat(path_, " exists; the option overwrite replaces it"));
  }
  absl::StatusOr<std::vector<DirectoryEntry>> entries = fs_.List(path_);
  if (absl::IsNotFound(entries.status())) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(entries.status());
  if (entries->empty()) return absl::OkStatus();  // a bucket
  if (is_dcp()) return InspectDcp(overwrite, *entries);
  return absl::AlreadyExistsError(absl::StrCat(
      path_,
      " is not empty; in an object store a directory of several files replaces "
      "nothing, because readers would meet a mixture: remove what is there, or "
      "choose another destination"));
}

// Objects that no index names are those of other writers, running or dead: they
// are neither an obstacle nor ours to remove.
absl::Status StoreDestination::InspectDcp(
    bool overwrite, absl::Span<const DirectoryEntry> entries) {
  const bool only_unnamed = std::all_of(
      entries.begin(), entries.end(), [](const DirectoryEntry& entry) {
        return IsDataFileName(entry.name) || IsDigestsName(entry.name);
      });
  if (only_unnamed) return absl::OkStatus();
  if (!overwrite) {
    return absl::AlreadyExistsError(
        absl::StrCat(path_,
                     " exists and is not empty; the option overwrite replaces "
                     "the checkpoint in it"));
  }
  const absl::StatusOr<FileInfo> index =
      fs_.Stat(JoinPath(path_, kDcpMetadataName));
  if (!index.ok() && !absl::IsNotFound(index.status())) return index.status();
  if (index.ok()) seen_ = *index;
  for (std::string& name : StaleInDcpDirectory(entries)) {
    if (name != kDcpMetadataName) stale_.push_back(std::move(name));
  }
  return absl::OkStatus();
}

std::string StoreDestination::NextDataFileName(int64_t rank) {
  return absl::StrCat("__", rank, "_", num_files_[rank]++, ".", id_, ".distcp");
}

absl::Status StoreDestination::Begin(
    const absl::flat_hash_set<std::string>& kept,
    const std::vector<std::string>&) {
  if (kept.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      path_, ": a conversion into an object store begins again after a kill"));
}

std::string StoreDestination::PathOf(absl::string_view name) const {
  return kind_ == Kind::kFile ? path_ : JoinPath(path_, name);
}

absl::StatusOr<File> StoreDestination::CreateFile(absl::string_view name,
                                                  const DataFile& file) {
  if (file.is_shared) return fs_.OpenShared(PathOf(name), file.size);
  return fs_.CreateInParts(
      PathOf(name),
      {.size = file.size, .part_bytes = file.block_bytes, .hidden = !is_dcp()});
}

void StoreDestination::Created(absl::string_view name) {
  created_.push_back(PathOf(name));
}

absl::Status StoreDestination::Commit(absl::string_view index_name,
                                      absl::string_view index,
                                      absl::string_view digests_name,
                                      const std::vector<ChunkDigest>& digests) {
  if (kind_ == Kind::kFile) return PublishAll();
  if (!digests.empty()) {
    const std::string path = JoinPath(path_, digests_name);
    DCP_RETURN_IF_ERROR(WriteFile(fs_, path, WriteDigests(digests)));
    if (is_dcp()) created_.push_back(path);
  }
  if (!is_dcp()) DCP_RETURN_IF_ERROR(PublishAll());
  if (!index_name.empty()) {
    DCP_RETURN_IF_ERROR(PutIndex(JoinPath(path_, index_name), index));
  }
  committed_ = true;
  RemoveStale();
  return absl::OkStatus();
}

absl::Status StoreDestination::PutIndex(absl::string_view path,
                                        absl::string_view index) {
  const absl::Status put = fs_.Replace(path, index, seen_);
  if (put.ok() || absl::IsAlreadyExists(put)) return put;
  // The answer may be lost and the index be there: what it names stays.
  committed_ = true;
  return Annotate(put, path_,
                  " may or may not have been written completely: look with "
                  "`dcp-convert verify`, and write it again if it was not");
}

// The weights appear after everything else: without them it is not a model.
absl::Status StoreDestination::PublishAll() {
  std::stable_partition(created_.begin(), created_.end(),
                        [](const std::string& path) {
                          return !BelongsToSafetensors(BaseName(path));
                        });
  for (const std::string& path : created_) {
    committed_ = kind_ == Kind::kFile;
    DCP_RETURN_IF_ERROR(fs_.Publish(path));
  }
  return absl::OkStatus();
}

absl::Status StoreDestination::FinishCommit() {
  committed_ = true;
  RemoveStale();
  return absl::OkStatus();
}

// The new checkpoint is there; what cannot be removed is only litter.
void StoreDestination::RemoveStale() {
  absl::Status status;
  for (const std::string& name : stale_) {
    const std::string path = JoinPath(path_, name);
    if (std::find(created_.begin(), created_.end(), path) == created_.end()) {
      status.Update(fs_.Remove(path));
    }
  }
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=stale_files_left path=" << path_
                      << " error=" << status.message();
  }
}

void StoreDestination::RemoveCreated() {
  absl::Status status;
  for (const std::string& path : created_) {
    // A hidden file that was closed before it was complete is gone already.
    const absl::Status discarded =
        is_dcp() ? fs_.Remove(path) : fs_.Discard(path);
    if (!absl::IsNotFound(discarded)) status.Update(discarded);
    // One that a failed commit has published: nothing was there before.
    if (kind_ == Kind::kDirectory || kind_ == Kind::kFolders) {
      status.Update(fs_.Remove(path));
    }
  }
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=unfinished_output_left path=" << path_
                      << " error=" << status.message();
  }
}

}  // namespace dcp
