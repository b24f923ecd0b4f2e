// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/share/work_status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
#include "dcp/checkpoint/share/work_records.h"
#include "dcp/checkpoint/share/work_uploads.h"

namespace dcp {
namespace {

absl::Status RemoveIfThere(FileSystem& fs, absl::string_view path) {
  const absl::Status removed = fs.Remove(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

// Removes the data files of a plan whose records are gone.
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

// A piece that is durable.
struct Done {
  PieceRecord record;
  int64_t written_ns = 0;
};

// The record of each piece; nullopt for a piece that is not done.
absl::StatusOr<std::vector<std::optional<Done>>> DoneIn(FileSystem& fs,
                                                        WorkRecords& records,
                                                        const WorkPlan& plan) {
  std::vector<std::optional<Done>> done(plan.pieces.size());
  DCP_RETURN_IF_ERROR(
      ParallelFor(done.size(), kRecordsAtOnce, [&](size_t i) -> absl::Status {
        const auto piece = static_cast<uint32_t>(i);
        absl::StatusOr<PieceRecord> record = records.Read(
            piece, plan.verify.has_value() ? absl::string_view()
                                           : plan.files[plan.pieces[i].file]);
        if (absl::IsNotFound(record.status())) return absl::OkStatus();
        DCP_RETURN_IF_ERROR(record.status());
        const absl::StatusOr<FileInfo> info =
            fs.Stat(JoinPath(records.directory(), absl::StrCat(piece)));
        done[i] = {.record = *std::move(record),
                   .written_ns = info.ok() ? info->modified_ns : 0};
        return absl::OkStatus();
      }));
  return done;
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
  DCP_ASSIGN_OR_RETURN(const std::vector<std::optional<Done>> done,
                       DoneIn(fs, records, *plan));
  for (uint32_t i = 0; i < done.size(); ++i) {
    status.num_bytes += plan->pieces[i].length;
    if (!done[i].has_value()) continue;
    const PieceRecord* const record = &done[i]->record;
    status.done.push_back({.piece = i,
                           .bytes = record->bytes,
                           .milliseconds = record->milliseconds,
                           .written_ns = done[i]->written_ns,
                           .host = record->host});
    if (!status.report.has_value()) continue;
    status.report->Add(
        {.num_crcs_checked = record->check.num_crcs_checked,
         .num_digests_checked = record->check.num_digests_checked,
         .num_items_unchecked = record->check.num_items_unchecked,
         .num_items_missed = record->num_items_missed,
         .bytes_checked = record->check.bytes_checked,
         .findings = record->findings});
  }
  return status;
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
