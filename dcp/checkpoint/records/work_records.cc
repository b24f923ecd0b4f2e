// SPDX-License-Identifier: Apache-2.0
// The directory has a file named plan, and for each durable piece one named by
// the number, in the form of work_record.cc. A file is written under a name
// that no other worker uses, synced, and renamed, so that a record that is
// there is whole; in an object store it is put.
#include "dcp/checkpoint/records/work_records.h"

#include <limits.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/parallel_for.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/destination/save_id.h"
#include "dcp/checkpoint/records/record_text.h"

namespace dcp {
namespace {

constexpr absl::string_view kPlanName = "plan";
// How often new files may appear in a directory that is being removed.
constexpr int kMaxRemovals = 100;

}  // namespace

std::string HostName() {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  return host;
}

std::string WorkRecords::RecordsDirectory(absl::string_view path,
                                          DestinationKind kind,
                                          absl::string_view id) {
  const std::string plain = WithoutTrailingSlashes(path);
  return kind == DestinationKind::kDcpDirectory
             ? JoinPath(plain, WorkRecordsName(id))
             : SiblingPath(plain, id, kWorkRecordsSuffix);
}

absl::StatusOr<std::vector<std::string>> WorkRecords::Find(
    FileSystem& fs, absl::string_view path) {
  const std::string plain = WithoutTrailingSlashes(path);
  std::vector<std::string> found;
  const absl::StatusOr<std::vector<DirectoryEntry>> inside = fs.List(plain);
  if (inside.ok()) {
    for (const DirectoryEntry& entry : *inside) {
      if (entry.kind == FileKind::kDirectory && IsWorkRecordsName(entry.name)) {
        found.push_back(JoinPath(plain, entry.name));
      }
    }
  }
  const std::string parent = ParentDirectory(plain);
  const absl::StatusOr<std::vector<DirectoryEntry>> beside = fs.List(parent);
  if (absl::IsNotFound(beside.status()) && !fs.TraitsAt(path).has_rename) {
    return found;  // folders in a store need not be made
  }
  DCP_RETURN_IF_ERROR(beside.status());
  for (const DirectoryEntry& entry : *beside) {
    if (entry.kind == FileKind::kDirectory &&
        IsSiblingName(entry.name, BaseName(plain), kWorkRecordsSuffix)) {
      found.push_back(JoinPath(parent, entry.name));
    }
  }
  return found;
}

absl::Status WorkRecords::CheckNoOthers(absl::string_view path) const {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> directories,
                       Find(fs_, path));
  for (const std::string& directory : directories) {
    if (BaseName(directory) == BaseName(directory_)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        directory,
        " belongs to workers with another plan: their source, options or "
        "version differ from those of this worker, whose records are ",
        BaseName(directory_),
        "; compare what both were told to do, or discard the other work"));
  }
  return absl::OkStatus();
}

absl::Status WorkRecords::Begin(const WorkPlan& plan) {
  const std::string text = WritePlanRecord(plan);
  absl::Status made = fs_.MakeDirectory(directory_);
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  const std::string path = JoinPath(directory_, kPlanName);
  if (absl::IsNotFound(fs_.Stat(path).status())) {
    DCP_RETURN_IF_ERROR(Put(path, text));
    DCP_RETURN_IF_ERROR(fs_.SyncDirectory(ParentDirectory(directory_)));
  }
  DCP_ASSIGN_OR_RETURN(const std::string there,
                       ReadFile(fs_, path, kMaxMetadataBytes,
                                /*follow_symlinks=*/false));
  if (there == text) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is not the plan of this worker, although both have the id ",
      plan.id, ": use the same version of dcp-convert for all workers"));
}

absl::StatusOr<WorkPlan> WorkRecords::ReadPlan() {
  const std::string path = JoinPath(directory_, kPlanName);
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadFile(fs_, path, kMaxMetadataBytes,
                                /*follow_symlinks=*/false));
  absl::StatusOr<WorkPlan> plan = ParsePlanRecord(text);
  if (!plan.ok()) return Annotate(plan.status(), path);
  return plan;
}

std::string WorkRecords::PathOf(uint32_t piece) const {
  return JoinPath(directory_, absl::StrCat(piece));
}

absl::StatusOr<bool> WorkRecords::Has(uint32_t piece) {
  const absl::StatusOr<File> file =
      fs_.OpenForRead(PathOf(piece), DirectMode::kOff,
                      /*follow_symlinks=*/false);
  if (absl::IsNotFound(file.status())) return false;
  DCP_RETURN_IF_ERROR(file.status());
  DCP_RETURN_IF_ERROR(fs_.Close(*file));
  return true;
}

absl::StatusOr<std::vector<uint32_t>> WorkRecords::Without(
    std::vector<uint32_t> pieces) {
  std::vector<std::atomic<bool>> done(pieces.size());
  DCP_RETURN_IF_ERROR(
      ParallelFor(pieces.size(), kRecordsAtOnce, [&](size_t i) -> absl::Status {
        DCP_ASSIGN_OR_RETURN(done[i], Has(pieces[i]));
        return absl::OkStatus();
      }));
  size_t i = 0;
  std::erase_if(pieces, [&](uint32_t) { return done[i++].load(); });
  return pieces;
}

absl::Status WorkRecords::Publish(const std::string& path,
                                  absl::string_view bytes) {
  const std::string temporary = JoinPath(
      directory_, absl::StrCat(BaseName(path), ".", NewSaveId(), ".tmp"));
  DCP_RETURN_IF_ERROR(WriteFile(fs_, temporary, bytes));
  DCP_RETURN_IF_ERROR(fs_.Rename(temporary, path));
  return fs_.SyncDirectory(ParentDirectory(path));
}

// In an object store, those who read it must not see it replaced.
absl::Status WorkRecords::Put(const std::string& path,
                              absl::string_view bytes) {
  if (fs_.TraitsAt(path).has_rename) return Publish(path, bytes);
  const absl::Status put = fs_.Replace(path, bytes, std::nullopt);
  return absl::IsAlreadyExists(put) ? absl::OkStatus() : put;
}

absl::Status WorkRecords::Write(uint32_t piece, PieceRecord record) {
  record.number = piece;
  return Put(PathOf(piece), WritePieceRecord(record));
}

absl::StatusOr<PieceRecord> WorkRecords::Read(uint32_t piece,
                                              const WorkPlan& plan) {
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadFile(fs_, PathOf(piece), kMaxMetadataBytes,
                                /*follow_symlinks=*/false));
  absl::StatusOr<PieceRecord> record = ParsePieceRecord(text, plan);
  if (record.ok() && record->number != piece) record = MalformedRecord(text);
  if (!record.ok()) return Annotate(record.status(), PathOf(piece));
  return record;
}

absl::StatusOr<bool> WorkRecords::HasAll(uint32_t num_pieces) {
  std::atomic<bool> has_all = true;
  if (fs_.TraitsAt(directory_).has_rename) {
    // A shared file system may give an old list.
    DCP_RETURN_IF_ERROR(
        ParallelFor(num_pieces, kRecordsAtOnce, [&](size_t i) -> absl::Status {
          if (!has_all) return absl::OkStatus();
          DCP_ASSIGN_OR_RETURN(const bool has, Has(static_cast<uint32_t>(i)));
          if (!has) has_all = false;
          return absl::OkStatus();
        }));
  } else {
    DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                         fs_.List(directory_));
    absl::flat_hash_set<std::string> names;
    for (const DirectoryEntry& entry : entries) names.insert(entry.name);
    for (uint32_t i = 0; i < num_pieces; ++i) {
      if (!names.contains(absl::StrCat(i))) has_all = false;
    }
  }
  // Or the records are gone, because the work has ended.
  if (!has_all) {
    DCP_RETURN_IF_ERROR(fs_.Stat(JoinPath(directory_, kPlanName)).status());
  }
  return has_all.load();
}

absl::Status WorkRecords::Forget(uint32_t piece) {
  absl::Status removed = fs_.Remove(PathOf(piece));
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  return fs_.SyncDirectory(directory_);
}

absl::Status WorkRecords::Remove() {
  for (int i = 0; i < kMaxRemovals; ++i) {
    const absl::StatusOr<std::vector<DirectoryEntry>> entries =
        fs_.List(directory_);
    if (absl::IsNotFound(entries.status())) return absl::OkStatus();
    DCP_RETURN_IF_ERROR(entries.status());
    // Without it, a worker that adds a record knows that the work has ended.
    absl::Status plan = fs_.Remove(JoinPath(directory_, kPlanName));
    if (!plan.ok() && !absl::IsNotFound(plan)) return plan;
    DCP_RETURN_IF_ERROR(
        ParallelFor(entries->size(), kRecordsAtOnce, [&](size_t k) {
          const std::string& name = (*entries)[k].name;
          if (name == kPlanName) return absl::OkStatus();
          absl::Status gone = fs_.Remove(JoinPath(directory_, name));
          return absl::IsNotFound(gone) ? absl::OkStatus() : gone;
        }));
    absl::Status removed = fs_.RemoveDirectory(directory_);
    if (removed.ok() || absl::IsNotFound(removed)) return absl::OkStatus();
    // Another worker has just added a record.
    if (!absl::IsFailedPrecondition(removed)) return removed;
  }
  return absl::UnavailableError(absl::StrCat(
      directory_, " cannot be removed: other workers keep adding records"));
}

}  // namespace dcp
