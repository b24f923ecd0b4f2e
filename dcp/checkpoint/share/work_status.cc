// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/share/work_status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/error_side.h"
#include "dcp/base/parallel_for.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/destination/folders.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/records/work_records.h"

namespace dcp {
namespace {

absl::Status RemoveIfThere(FileSystem& fs, absl::string_view path) {
  const absl::Status removed = fs.Remove(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

// Removes a plan's data files. The records are gone.
absl::Status RemoveFiles(FileSystem& fs, absl::string_view dst,
                         const WorkPlan& plan) {
  const std::string staging = Destination::StagingPath(dst, plan.kind, plan.id);
  if (!fs.TraitsAt(dst).has_rename) {
    DCP_RETURN_IF_ERROR(RemoveUploads(fs, dst, plan, INT64_MAX));
    if (plan.kind != DestinationKind::kDcpDirectory) return absl::OkStatus();
  }
  if (plan.kind == DestinationKind::kFile) return RemoveIfThere(fs, staging);
  if (plan.kind != DestinationKind::kDcpDirectory) {
    const absl::Status removed = RemoveFolders(fs, staging, {});
    return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
  }
  DCP_RETURN_IF_ERROR(
      ParallelFor(plan.files.size(), kRecordsAtOnce, [&](size_t i) {
        return RemoveIfThere(fs, JoinPath(staging, plan.files[i]));
      }));
  DCP_RETURN_IF_ERROR(
      RemoveIfThere(fs, JoinPath(staging, DigestsName(plan.id))));
  return RemoveIfThere(fs, JoinPath(staging, TemporaryIndexName(plan.id)));
}

// Records must not outlive the files that they describe, so they go first.
absl::Status Discard(FileSystem& fs, absl::string_view dst,
                     const std::string& directory) {
  WorkRecords records(fs, directory);
  const absl::StatusOr<WorkPlan> plan = records.ReadPlan();
  if (!plan.ok() && !absl::IsNotFound(plan.status())) return plan.status();
  DCP_RETURN_IF_ERROR(records.Remove());
  DCP_RETURN_IF_ERROR(fs.SyncDirectory(ParentDirectory(directory)));
  return plan.ok() && !plan->verify.has_value() ? RemoveFiles(fs, dst, *plan)
                                                : absl::OkStatus();
}

// Adds the pieces that have records.
absl::Status AddDone(FileSystem& fs, WorkRecords& records, const WorkPlan& plan,
                     WorkStatus& status) {
  std::vector<std::optional<PieceRecord>> found(plan.pieces.size());
  std::vector<int64_t> written_ns(found.size());
  DCP_RETURN_IF_ERROR(
      ParallelFor(found.size(), kRecordsAtOnce, [&](size_t i) -> absl::Status {
        absl::StatusOr<PieceRecord> record =
            records.Read(static_cast<uint32_t>(i), plan);
        if (absl::IsNotFound(record.status())) return absl::OkStatus();
        DCP_RETURN_IF_ERROR(record.status());
        found[i] = *std::move(record);
        const absl::StatusOr<FileInfo> info =
            fs.Stat(JoinPath(records.directory(), absl::StrCat(i)));
        if (info.ok()) written_ns[i] = info->modified_ns;
        return absl::OkStatus();
      }));
  for (uint32_t i = 0; i < found.size(); ++i) {
    status.num_bytes += plan.pieces[i].length;
    if (!found[i].has_value()) continue;
    status.done.push_back({.piece = i,
                           .bytes = found[i]->bytes,
                           .milliseconds = found[i]->milliseconds,
                           .written_ns = written_ns[i],
                           .host = found[i]->host});
    if (status.report.has_value() && found[i]->verified.has_value()) {
      status.report->Add(*found[i]->verified);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<WorkStatus>> FindWork(FileSystem& fs,
                                                   absl::string_view dst) {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> directories,
                       WorkRecords::Find(fs, dst));
  if (directories.empty()) return std::nullopt;
  if (directories.size() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        dst, " has unfinished work of several plans: ",
        absl::StrJoin(directories, ", "), "; discard it, and begin again"));
  }
  WorkRecords records(fs, directories[0]);
  const absl::StatusOr<WorkPlan> plan = records.ReadPlan();
  // It has ended, or is about to begin.
  if (absl::IsNotFound(plan.status())) return std::nullopt;
  DCP_RETURN_IF_ERROR(plan.status());
  WorkStatus status{.id = plan->id,
                    .num_pieces = static_cast<uint32_t>(plan->pieces.size()),
                    .report = plan->verify};
  DCP_RETURN_IF_ERROR(AddDone(fs, records, *plan, status));
  return status;
}

absl::Status RemoveUploads(FileSystem& fs, absl::string_view dst,
                           const WorkPlan& plan, int64_t before_ns) {
  const bool is_file = plan.kind == DestinationKind::kFile;
  const std::string path = WithoutTrailingSlashes(dst);
  absl::flat_hash_set<std::string> files;
  if (is_file) files.insert(path);
  for (const std::string& name : plan.files) {
    if (!is_file) files.insert(JoinPath(path, name));
  }
  DCP_ASSIGN_OR_RETURN(const std::vector<HiddenFile> hidden,
                       fs.ListHidden(is_file ? ParentDirectory(path) : path));
  for (const HiddenFile& file : hidden) {
    if (file.begun_ns >= before_ns || !files.contains(file.path)) continue;
    const absl::Status removed = fs.RemoveHidden(file);
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> DiscardWork(FileSystem& fs, absl::string_view dst) {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> directories,
                       WorkRecords::Find(fs, dst));
  for (const std::string& directory : directories) {
    DCP_RETURN_IF_ERROR(
        WithSide(Discard(fs, dst, directory), ErrorSide::kDestination));
  }
  return directories.size();
}

}  // namespace dcp
