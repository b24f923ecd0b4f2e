// SPDX-License-Identifier: Apache-2.0
// Commits a shared conversion in an object store, where each put takes effect
// once.
// Tested by tests/dcp/checkpoint/convert/share_store_test.cc.
#include "dcp/checkpoint/share/store_share_commit.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "dcp/base/error_side.h"
#include "dcp/base/parallel_for.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "dcp/checkpoint/destination/store_destination.h"
#include "dcp/checkpoint/share/work_status.h"

namespace dcp {

// Without this file, the others are not a checkpoint.
std::string StoreShareCommit::LastFile() const {
  const std::string& index = conversion_.output.index_name;
  if (!index.empty()) return JoinPath(dst_, index);
  if (plan_.kind == DestinationKind::kFile) return dst_;
  const auto weights = std::find_if(plan_.files.rbegin(), plan_.files.rend(),
                                    BelongsToSafetensors);
  return JoinPath(dst_, weights == plan_.files.rend() ? "" : *weights);
}

absl::StatusOr<bool> StoreShareCommit::IsThere() {
  // A DCP index has the plan's id. The index of safetensors files may be the
  // same for another model.
  if (plan_.kind == DestinationKind::kDcpDirectory) return HasIndex();
  return StoreDestination::HasAppeared(fs_, dst_, plan_.kind,
                                       {.id = plan_.id, .names = plan_.files});
}

void StoreShareCommit::Clean() {
  if (!fs_.Stat(records_.directory()).ok()) return;
  const absl::StatusOr<FileInfo> info = fs_.Stat(LastFile());
  // Uploads that began later belong to the next writer.
  absl::Status status = info.status();
  if (status.ok()) status = RemoveUploads(fs_, dst_, plan_, info->modified_ns);
  RemoveRecords(status);
}

absl::StatusOr<ShareCommit::Outcome> StoreShareCommit::Commit() {
  absl::StatusOr<std::unique_ptr<Destination>> destination = PlanDestination(
      fs_, dst_, plan_.kind, options_.overwrite, Own(), options_.writer);
  DCP_ASSIGN_OR_RETURN(const bool was_there, IsThere());
  if (!was_there) {
    DCP_RETURN_IF_ERROR(
        WithSide(destination.status(), ErrorSide::kDestination));
    DCP_RETURN_IF_ERROR(MakeAppear(**destination));
  }
  Clean();
  return was_there ? Outcome::kWasThere : Outcome::kCommitted;
}

absl::StatusOr<StoreShareCommit::Found> StoreShareCommit::Find(
    uint32_t file, const PieceRecord& record, const std::string& path) {
  const uint64_t size = conversion_.output.files[file].layout.size();
  const bool is_dcp = plan_.kind == DestinationKind::kDcpDirectory;
  if (!is_dcp) {
    const absl::Status adopted =
        fs_.Adopt({.path = path, .id = record.upload}, size);
    if (adopted.ok()) return Found::kHidden;
    const bool is_gone =
        absl::IsNotFound(adopted) || absl::IsFailedPrecondition(adopted);
    if (!is_gone) return adopted;
  }
  // Another worker may have published it.
  const absl::StatusOr<FileInfo> info = fs_.Stat(path);
  if (!info.ok() && !absl::IsNotFound(info.status())) return info.status();
  const bool is_ours =
      info.ok() && info->size == size && (is_dcp || info->label == plan_.id);
  return is_ours ? Found::kVisible : Found::kNot;
}

absl::Status StoreShareCommit::Complete(const std::vector<PieceRecord>& records,
                                        Destination& destination) {
  // There is one piece for each file.
  std::vector<Found> found(plan_.files.size());
  DCP_RETURN_IF_ERROR(
      ParallelFor(found.size(), kRecordsAtOnce, [&](size_t i) -> absl::Status {
        DCP_ASSIGN_OR_RETURN(found[i],
                             Find(static_cast<uint32_t>(i), records[i],
                                  destination.FilePath(plan_.files[i])));
        return absl::OkStatus();
      }));
  for (uint32_t i = 0; i < found.size(); ++i) {
    if (found[i] == Found::kNot) {
      return ForgetFile(i, destination.FilePath(plan_.files[i]));
    }
    if (found[i] == Found::kHidden) destination.Created(plan_.files[i]);
  }
  return absl::OkStatus();
}

}  // namespace dcp
