// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/share/share_commit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/base/parallel_for.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/moved_payload.h"
#include "dcp/checkpoint/destination/destination_names.h"

namespace dcp {

ShareCommit::ShareCommit(FileSystem& fs, absl::string_view dst,
                         Conversion& conversion, WorkRecords& records,
                         const WorkPlan& plan, ConvertOptions& options)
    : fs_(fs),
      dst_(WithoutTrailingSlashes(dst)),
      conversion_(conversion),
      records_(records),
      plan_(plan),
      options_(options) {}

OwnFiles ShareCommit::Own() const {
  OwnFiles own{.id = plan_.id,
               .ran_before = true,
               .is_shared = true,
               .names = plan_.files};
  own.names.push_back(std::string(BaseName(records_.directory())));
  if (conversion_.companions.files != nullptr) {
    own.companions = conversion_.companions.files->names();
  }
  return own;
}

absl::StatusOr<std::string> ShareCommit::Index() {
  Output& output = conversion_.output;
  if (!index_.has_value()) {
    index_ = output.index != nullptr ? output.index() : std::string();
  }
  return *index_;
}

absl::StatusOr<bool> ShareCommit::HasIndex() {
  const std::string path = JoinPath(dst_, conversion_.output.index_name);
  const absl::StatusOr<FileInfo> info = fs_.Stat(path);
  if (absl::IsNotFound(info.status())) return false;
  DCP_RETURN_IF_ERROR(info.status());
  DCP_ASSIGN_OR_RETURN(const std::string index, Index());
  if (info->size != index.size()) return false;
  DCP_ASSIGN_OR_RETURN(const std::string there,
                       ReadFile(fs_, path, kMaxMetadataBytes,
                                /*follow_symlinks=*/true));
  return there == index;
}

absl::Status ShareCommit::ForgetFile(uint32_t file, absl::string_view path) {
  for (uint32_t piece = 0; piece < plan_.pieces.size(); ++piece) {
    if (plan_.pieces[piece].file == file) {
      DCP_RETURN_IF_ERROR(records_.Forget(piece));
    }
  }
  return absl::UnavailableError(absl::StrCat(
      path,
      " was removed or cut after workers had written it; run again to write it "
      "again"));
}

void ShareCommit::RemoveRecords(absl::Status status) {
  // The records go last: they tell the next run that something may be left to
  // remove.
  if (status.ok()) status = records_.Remove();
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=records_of_workers_left path="
                      << records_.directory() << " error=" << status.message();
  }
}

absl::StatusOr<std::vector<PieceRecord>> ShareCommit::ReadRecords() {
  ConvertPlan& plan = conversion_.plan;
  plan.check = {};
  std::fill(conversion_.num_beyond.begin(), conversion_.num_beyond.end(), 0);
  std::vector<PieceRecord> records(plan_.pieces.size());
  DCP_RETURN_IF_ERROR(ParallelFor(
      records.size(), kRecordsAtOnce, [&](size_t i) -> absl::Status {
        DCP_ASSIGN_OR_RETURN(records[i],
                             records_.Read(static_cast<uint32_t>(i), plan_));
        return absl::OkStatus();
      }));
  for (size_t i = 0; i < records.size(); ++i) {
    plan.check.Add(records[i].check);
    if (AddBeyond(records[i].written, conversion_)) continue;
    return absl::DataLossError(
        absl::StrCat(records_.directory(), "/", i,
                     " counts elements of a payload that the plan lacks"));
  }
  plan.cast_losses = CastLosses(conversion_);
  return records;
}

absl::Status ShareCommit::CheckSource(const std::vector<PieceRecord>& records) {
  std::vector<OwnedPart> parts;
  for (uint32_t piece = 0; piece < records.size(); ++piece) {
    for (const StretchPart& part : records[piece].parts) {
      parts.push_back({.owner = piece, .part = &part});
    }
  }
  std::vector<uint32_t> wrong;
  const absl::Status checked = CheckStretchParts(
      fs_, conversion_.source->files(), std::move(parts),
      {.memory_bytes = conversion_.plan.memory_bytes, .stop = options_.stop},
      conversion_.plan.check, wrong);
  // The next run reads their parts again.
  for (const uint32_t piece : wrong) {
    absl::Status forgotten = records_.Forget(piece);
    for (const uint32_t other : records[piece].moved_with) {
      if (other < records.size()) forgotten.Update(records_.Forget(other));
    }
    DCP_RETURN_IF_ERROR(WithSide(forgotten, ErrorSide::kDestination));
  }
  return WithSide(checked, ErrorSide::kSource);
}

absl::Status ShareCommit::MakeAppear(Destination& destination) {
  DCP_RETURN_IF_ERROR(conversion_.source->CheckUnchanged());
  const auto at_destination = [](const absl::Status& status) {
    return WithSide(status, ErrorSide::kDestination);
  };
  absl::StatusOr<std::vector<PieceRecord>> records = ReadRecords();
  DCP_RETURN_IF_ERROR(at_destination(records.status()));
  DCP_RETURN_IF_ERROR(CheckSource(*records));
  if (options_.strict_cast && !conversion_.plan.cast_losses.empty()) {
    return StrictCastError(conversion_.plan.cast_losses);
  }
  DCP_RETURN_IF_ERROR(at_destination(Complete(*records, destination)));
  std::vector<ChunkDigest> digests;
  for (PieceRecord& record : *records) {
    digests.insert(digests.end(), record.written.digests.begin(),
                   record.written.digests.end());
  }
  if (options_.stop.stop_requested()) {
    return absl::CancelledError("stopped before the checkpoint appeared");
  }
  if (options_.on_commit != nullptr) options_.on_commit();
  DCP_RETURN_IF_ERROR(at_destination(Announce(digests)));
  DCP_ASSIGN_OR_RETURN(const std::string index, Index());
  const Output& output = conversion_.output;
  return at_destination(destination.Commit(output.index_name, index,
                                           output.digests_name, digests));
}

}  // namespace dcp
