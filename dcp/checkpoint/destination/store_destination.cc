// SPDX-License-Identifier: Apache-2.0
// The protocol. A put is atomic, and a reader that asks after it sees the
// object. An upload is invisible until it is finished. Nothing is locked: two
// writers may work at the same time, and one of them commits.
//
// Before anything else, an empty object is put on a condition and removed. A
// server that refuses conditions, or this writer, says so before payload moves.
//
// A DCP directory:
//   1. see which .metadata is there, if any
//   2. put data files as __{rank}_{i}.{id}.distcp, a name that no other writer
//      has; each appears when it is complete
//   3. put .digests-<save id>
//   4. put .metadata, on condition that it is still the one of step 1: the
//      commit
//   5. remove the objects that the replaced index named
// A crash before step 4 leaves the old index with all objects that it names,
// and objects that no index names; a crash after it leaves the new index. A
// writer that loses step 4 to another removes the objects that it put.
//
// A file: it stays a hidden upload until the commit. The commit finishes the
// upload on condition that nothing is there. If files may be replaced, there is
// no condition, and the last writer to finish wins.
//
// A directory of safetensors, or with folders: all files stay hidden until the
// commit. It publishes the companions, then the weights, and puts the index
// last, each on condition that nothing is there: otherwise a reader that has an
// old index could find new files.
//
// A conversion that can resume finds the objects in the DCP directory again and
// goes on. Uploads that the dead run left under these names are removed, and
// hidden files are written again: their label is the conversion's id, which
// tells whether they have appeared.
//
// `dcp-convert clean` removes the objects of other killed writers.
#include "dcp/checkpoint/destination/store_destination.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/base/log.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/destination/replaceable.h"
#include "dcp/checkpoint/destination/save_id.h"
#include "dcp/checkpoint/formats/dcp_opener.h"

namespace dcp {
namespace {

// Labels are letters and digits.
std::string LabelForId(absl::string_view id) {
  return absl::StrReplaceAll(id, {{"-", ""}});
}

absl::StatusOr<bool> HasLabel(FileSystem& fs, absl::string_view path,
                              absl::string_view id) {
  const absl::StatusOr<FileInfo> info = fs.Stat(path);
  if (absl::IsNotFound(info.status())) return false;
  DCP_RETURN_IF_ERROR(info.status());
  return info->label == LabelForId(id);
}

bool IsJsonIndex(absl::string_view name) {
  return absl::EndsWith(name, ".safetensors.index.json");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Destination>> StoreDestination::Plan(
    FileSystem& fs, const DestinationPath& path, Kind kind, bool overwrite,
    const OwnFiles& own) {
  if (path.text().empty()) {
    return absl::InvalidArgumentError("the destination has no name");
  }
  std::unique_ptr<StoreDestination> destination(
      new StoreDestination(fs, path, kind));
  destination->replaces_ = overwrite && kind == Kind::kFile;
  destination->own_ = own;
  destination->id_ = own.id.empty() ? NewSaveId() : own.id;
  destination->committed_ = own.is_shared;
  DCP_RETURN_IF_ERROR(destination->Inspect(overwrite));
  return destination;
}

std::unique_ptr<Destination> StoreDestination::Attach(
    FileSystem& fs, const DestinationPath& path) {
  std::unique_ptr<StoreDestination> destination(
      new StoreDestination(fs, path, Kind::kDcpDirectory));
  destination->committed_ = true;  // the destructor has nothing to remove
  return destination;
}

StoreDestination::~StoreDestination() {
  if (!committed_) RemoveCreated();
}

// The index, if there is one, is put last. One of the files before it tells
// which conversion wrote it.
absl::StatusOr<bool> StoreDestination::HasAppeared(FileSystem& fs,
                                                   absl::string_view path,
                                                   Kind kind,
                                                   const OwnFiles& own) {
  if (kind == Kind::kFile) return HasLabel(fs, path, own.id);
  std::vector<std::string> names;  // the weights, or all
  for (const std::string& name : own.names) {
    if (kind == Kind::kFolders || absl::EndsWith(name, ".safetensors")) {
      names.push_back(name);
    }
  }
  const bool has_index = kind == Kind::kDirectory && names.size() > 1;
  if (has_index) names.resize(1);
  for (const std::string& name : names) {
    DCP_ASSIGN_OR_RETURN(const bool is_there,
                         HasLabel(fs, JoinPath(path, name), own.id));
    if (!is_there) return false;
  }
  if (!has_index) return true;
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs.List(path));
  return std::any_of(
      entries.begin(), entries.end(),
      [](const DirectoryEntry& entry) { return IsJsonIndex(entry.name); });
}

// Whether an earlier run of this conversion made `name` appear.
absl::StatusOr<bool> StoreDestination::IsOwn(absl::string_view name) const {
  if (!own_.ran_before) return false;
  if (IsDigestsName(name)) {
    return !is_dcp() || name == DigestsName(own_.id);
  }
  for (const std::string& own : own_.names) {
    const bool is_folder = absl::StartsWith(own, absl::StrCat(name, "/"));
    if (own != name && !is_folder) continue;
    if (is_dcp()) return true;  // the name contains the id
    DCP_ASSIGN_OR_RETURN(const bool is_own,
                         HasLabel(fs_, FilePath(own), own_.id));
    if (is_own) return true;
  }
  return false;
}

absl::Status StoreDestination::Inspect(bool overwrite) {
  DCP_RETURN_IF_ERROR(RefuseOtherWorkers(fs_, path_, own_));
  DCP_ASSIGN_OR_RETURN(const std::optional<FileInfo> info,
                       FindReplaceable(fs_, path_, kind_));
  if (!info.has_value()) return absl::OkStatus();
  if (kind_ == Kind::kFile) {
    seen_ = info;
    if (overwrite) return CheckReplaceableFile(fs_, path_, *info);
    return OptionError(absl::StatusCode::kAlreadyExists, path_, " exists; ",
                       OptionName{"overwrite"}, " replaces it");
  }
  absl::StatusOr<std::vector<DirectoryEntry>> entries = fs_.List(path_);
  if (absl::IsNotFound(entries.status())) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(entries.status());
  if (entries->empty()) return absl::OkStatus();  // a bucket
  return is_dcp() ? InspectDcp(overwrite, *entries)
                  : InspectDirectory(*entries);
}

absl::Status StoreDestination::InspectDirectory(
    absl::Span<const DirectoryEntry> entries) {
  if (own_.has_committed) return absl::OkStatus();
  for (const DirectoryEntry& entry : entries) {
    DCP_ASSIGN_OR_RETURN(const bool is_own, IsOwn(entry.name));
    if (is_own) continue;
    return absl::AlreadyExistsError(absl::StrCat(
        path_,
        " is not empty; in an object store a directory of several files "
        "replaces nothing, because readers would meet a mixture: remove the "
        "objects there, or choose another destination"));
  }
  return absl::OkStatus();
}

// Objects that no index names belong to other writers, running or dead: they
// do not prevent this write, and it must not remove them.
absl::Status StoreDestination::InspectDcp(
    bool overwrite, absl::Span<const DirectoryEntry> entries) {
  const bool only_unnamed = std::all_of(
      entries.begin(), entries.end(), [](const DirectoryEntry& entry) {
        return IsDataFileName(entry.name) || IsDigestsName(entry.name) ||
               IsWorkRecordsName(entry.name);
      });
  if (only_unnamed) return absl::OkStatus();
  if (!overwrite) {
    return OptionError(absl::StatusCode::kAlreadyExists, path_,
                       " exists and is not empty; ", OptionName{"overwrite"},
                       " replaces the checkpoint in it");
  }
  const absl::StatusOr<FileInfo> index =
      fs_.Stat(JoinPath(path_, kDcpMetadataName));
  if (!index.ok() && !absl::IsNotFound(index.status())) return index.status();
  if (index.ok()) seen_ = *index;
  for (std::string& name : StaleInDcpDirectory(entries)) {
    if (name == kDcpMetadataName) continue;
    DCP_ASSIGN_OR_RETURN(const bool is_own, IsOwn(name));
    if (!is_own) stale_.push_back(std::move(name));
  }
  return absl::OkStatus();
}

std::string StoreDestination::NextDataFileName(int64_t rank) {
  return DataFileName(rank, num_files_[rank]++, id_);
}

absl::Status StoreDestination::Begin(
    const absl::flat_hash_set<std::string>& kept,
    const std::vector<std::string>&) {
  for (const std::string& name : kept) Created(name);
  WarnIfLeft(RemoveEarlier(kept));
  return CheckAccepts();
}

// If the writer is killed, the run that resumes removes the probe, or
// `dcp-convert clean` does.
absl::Status StoreDestination::CheckAccepts() {
  if (replaces_) return absl::OkStatus();
  const std::string path = JoinPath(kind_ == Kind::kFile ? parent_ : path_,
                                    DigestsName(absl::StrCat("probe-", id_)));
  const absl::Status put = fs_.Replace(path, "", std::nullopt);
  if (put.ok()) WarnIfLeft(fs_.Remove(path));
  return Annotate(put, path_, " would not be accepted");
}

// Removes the objects of earlier runs of this conversion, except for `kept`.
absl::Status StoreDestination::RemoveEarlier(
    const absl::flat_hash_set<std::string>& kept) {
  if (!own_.ran_before) return absl::OkStatus();
  std::vector<std::string> names = own_.names;
  names.push_back(DigestsName(is_dcp() ? own_.id : ""));
  std::erase_if(names,
                [&](const std::string& name) { return kept.contains(name); });
  absl::flat_hash_set<std::string> paths;
  for (const std::string& name : names) {
    paths.insert(FilePath(name));
    if (kind_ == Kind::kFile) continue;
    DCP_ASSIGN_OR_RETURN(const bool is_own, IsOwn(name));
    if (is_own) DCP_RETURN_IF_ERROR(fs_.Remove(FilePath(name)));
  }
  DCP_ASSIGN_OR_RETURN(const std::vector<HiddenFile> uploads,
                       fs_.ListHidden(kind_ == Kind::kFile ? parent_ : path_));
  for (const HiddenFile& upload : uploads) {
    if (!paths.contains(upload.path)) continue;
    DCP_RETURN_IF_ERROR(fs_.RemoveHidden(upload));
  }
  return absl::OkStatus();
}

void StoreDestination::Discard() {
  RemoveCreated();
  WarnIfLeft(RemoveEarlier({}));
}

void StoreDestination::WarnIfLeft(const absl::Status& status) const {
  if (status.ok()) return;
  DCP_LOG(kWarning) << "event=unfinished_output_left path=" << path_
                    << " error=" << status.message();
}

std::string StoreDestination::FilePath(absl::string_view name) const {
  return kind_ == Kind::kFile ? path_ : JoinPath(path_, name);
}

absl::StatusOr<File> StoreDestination::CreateFile(absl::string_view name,
                                                  const DataFile& file) {
  if (file.is_shared)
    return fs_.OpenShared(FilePath(name), file.size, file.direct);
  return fs_.CreateInParts(FilePath(name),
                           {.size = file.size,
                            .part_bytes = file.block_bytes,
                            .hidden = !is_dcp(),
                            .label = is_dcp() ? "" : LabelForId(id_)});
}

void StoreDestination::Created(absl::string_view name) {
  created_.push_back(FilePath(name));
}

absl::Status StoreDestination::Commit(absl::string_view index_name,
                                      absl::string_view index,
                                      absl::string_view digests_name,
                                      const std::vector<ChunkDigest>& digests) {
  if (kind_ == Kind::kFile) return PublishAll();
  if (!digests.empty()) {
    const std::string path = JoinPath(path_, digests_name);
    const std::string bytes = DigestsText(kind_, index_name, index, digests);
    // If two writers found no directory of safetensors, only one goes on.
    DCP_RETURN_IF_ERROR(is_dcp() ? WriteFile(fs_, path, bytes)
                                 : fs_.Replace(path, bytes, std::nullopt));
    digests_path_ = path;
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
  absl::Status put = fs_.Replace(path, index, seen_);
  if (put.ok() || WasRefused(path, put)) return put;
  // The index may be there although the answer was lost: the objects it names
  // stay.
  committed_ = true;
  return Annotate(put, path_,
                  " may or may not have been written completely: look with "
                  "`dcp-convert verify`, and write it again if it was not");
}

// Whether the index is not there and will not appear. If so, the data files are
// removed too.
bool StoreDestination::WasRefused(absl::string_view path,
                                  const absl::Status& put) const {
  switch (put.code()) {
    case absl::StatusCode::kAlreadyExists:
      return true;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnimplemented:
      break;
    default:
      return false;  // the answer was lost
  }
  const absl::StatusOr<FileInfo> now = fs_.Stat(path);
  return seen_.has_value() ? now.ok() && *now == *seen_
                           : absl::IsNotFound(now.status());
}

// The weights appear after everything else: without them it is not a model.
absl::Status StoreDestination::PublishAll() {
  std::stable_partition(created_.begin(), created_.end(),
                        [](const std::string& path) {
                          return !BelongsToSafetensors(BaseName(path));
                        });
  for (const std::string& path : created_) {
    if (kind_ == Kind::kFile) committed_ = true;
    const absl::Status published = fs_.Publish(path, replaces_);
    if (published.ok()) continue;
    // Another worker of the same conversion may have published it, or this one
    // did but did not receive the answer.
    const absl::StatusOr<bool> is_own = HasLabel(fs_, path, id_);
    if (is_own.ok() && *is_own) continue;
    if (kind_ != Kind::kFile || !absl::IsAlreadyExists(published)) {
      return published;
    }
    return OptionError(absl::StatusCode::kAlreadyExists, published.message(),
                       "; ", OptionName{"overwrite"}, " replaces it");
  }
  return absl::OkStatus();
}

absl::Status StoreDestination::FinishCommit() {
  committed_ = true;
  RemoveStale();
  return absl::OkStatus();
}

// The new checkpoint is there; objects that cannot be removed are only litter.
void StoreDestination::RemoveStale() {
  absl::Status status;
  for (const std::string& name : stale_) {
    const std::string path = JoinPath(path_, name);
    if (path != digests_path_ &&
        std::find(created_.begin(), created_.end(), path) == created_.end()) {
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
  if (!digests_path_.empty()) status.Update(fs_.Remove(digests_path_));
  for (const std::string& path : created_) {
    // A hidden file that was closed before it was complete is gone already.
    const absl::Status discarded =
        is_dcp() ? fs_.Remove(path) : fs_.Discard(path);
    if (!absl::IsNotFound(discarded)) status.Update(discarded);
    // A failed commit published the file; nothing was there before.
    if (is_dcp() || kind_ == Kind::kFile) continue;
    const absl::StatusOr<bool> is_own = HasLabel(fs_, path, id_);
    if (is_own.ok() && *is_own) status.Update(fs_.Remove(path));
  }
  WarnIfLeft(status);
}

}  // namespace dcp
