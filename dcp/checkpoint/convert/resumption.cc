// SPDX-License-Identifier: Apache-2.0
// Finds, takes over or removes the work of an earlier run, from the journal.
//
// [Note: taking back] Records must not outlive the files that they describe. A
// file that is recorded, lost and partly written again would count as complete,
// and a recorded commit without its sibling as done. So before anything
// recorded is removed or written again, the plan is recorded once more, which
// revokes all records after it.
#include "dcp/checkpoint/convert/resumption.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/error_side.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/moved_payload.h"
#include "dcp/checkpoint/convert/plan_id.h"
#include "dcp/checkpoint/convert/prepare_conversion.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "dcp/checkpoint/records/work_records.h"

namespace dcp {
namespace {

// Identifies everything that decides which bytes go where.
uint64_t Fingerprint(const Conversion& conversion, absl::string_view src,
                     const ConvertOptions& options) {
  return Xxh3Digest(AsBytes(absl::StrCat(
      src, "\n", PlanText(conversion, options, SourceView::kThisMachine))));
}

// The bytes read and written for a file.
uint64_t OutputBytes(const FileLayout& layout, const Output& output) {
  uint64_t num_bytes = layout.size();
  for (const LayoutPart& part : layout.parts()) {
    if (part.payload_length == 0) continue;
    const Payload& payload = output.payloads[part.payload];
    num_bytes += static_cast<uint64_t>(Volume(payload.box.sizes)) *
                 ElementSize(payload.stored->dtype);
  }
  return num_bytes;
}

}  // namespace

ResumableRun::ResumableRun(FileSystem& fs, absl::string_view src,
                           absl::string_view dst, const ConvertOptions& options)
    : fs_(fs),
      src_(src),
      dst_(dst),
      options_(options),
      journal_(*options.journal) {}

// Only after a stop: a run that failed for another reason is not resumed.
bool ResumableRun::Keeps(const absl::Status& status) const {
  return journal_.keeps != nullptr && absl::IsCancelled(status) &&
         journal_.keeps();
}

// See [Note: taking back].
absl::Status ResumableRun::TakeBack(const WorkPlan& plan) {
  return journal_.append(WritePlanRecord(plan));
}

// Removes the files that the run wrote.
absl::Status ResumableRun::Discard(const JournaledRun& run) {
  DCP_RETURN_IF_ERROR(TakeBack(run.plan));
  absl::StatusOr<std::unique_ptr<Destination>> destination =
      PlanDestination(fs_, dst_, run.plan.kind, /*overwrite=*/true, run.own());
  if (destination.ok()) (*destination)->Discard();
  return absl::OkStatus();
}

absl::Status ResumableRun::ReadRecords() {
  DCP_ASSIGN_OR_RETURN(before_, ParseConvertRecords(journal_.before));
  if (!before_.has_value()) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(committed_, WasCommitted(fs_, dst_, *before_));
  if (committed_ || before_->plan.kind != Destination::Kind::kDcpDirectory) {
    return absl::OkStatus();
  }
  DCP_ASSIGN_OR_RETURN(const std::string index, IndexDigest(fs_, dst_));
  if (index == before_->plan.journaled->index_before) return absl::OkStatus();
  // Another checkpoint has appeared, on a disk perhaps with the same file
  // names.
  if (!fs_.TraitsAt(dst_).has_rename) DCP_RETURN_IF_ERROR(Discard(*before_));
  before_.reset();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ConvertPlan>> ResumableRun::FinishEarlier() {
  DCP_RETURN_IF_ERROR(ReadRecords());
  if (!committed_) return std::nullopt;
  // The run that made the checkpoint was killed before it returned.
  OwnFiles own = before_->own();
  own.has_committed = true;
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<Destination> destination,
                       PlanDestination(fs_, dst_, before_->plan.kind,
                                       /*overwrite=*/true, own));
  DCP_RETURN_IF_ERROR(
      WithSide(destination->FinishCommit(), ErrorSide::kDestination));
  return std::move(before_->commit->plan);
}

absl::StatusOr<Conversion> ResumableRun::Prepare() {
  if (options_.stop.stop_requested()) {
    const absl::Status stopped =
        absl::CancelledError("stopped before it began");
    if (before_.has_value() && !Keeps(stopped)) {
      DCP_RETURN_IF_ERROR(Discard(*before_));
    }
    return stopped;
  }
  if (!before_.has_value()) return PrepareAndDescribe(nullptr);
  absl::StatusOr<Conversion> conversion = PrepareAndDescribe(&*before_);
  if (conversion.ok() &&
      plan_.journaled->fingerprint == before_->plan.journaled->fingerprint) {
    return conversion;
  }
  // Releases the lock, for Discard.
  if (conversion.ok()) conversion->destination.reset();
  if (conversion.ok() || !Keeps(conversion.status())) {
    DCP_RETURN_IF_ERROR(Discard(*before_));
  }
  if (!conversion.ok()) return conversion;
  DCP_LOG(kInfo) << "event=conversion_begins_anew path=" << dst_;
  before_.reset();
  return PrepareAndDescribe(nullptr);
}

absl::StatusOr<Conversion> ResumableRun::PrepareAndDescribe(
    const JournaledRun* before) {
  OwnFiles own;
  if (before != nullptr) own = before->own();
  DCP_ASSIGN_OR_RETURN(Conversion conversion,
                       PrepareConversion(fs_, src_, dst_, options_,
                                         before != nullptr ? &own : nullptr));
  DCP_RETURN_IF_ERROR(WithSide(Describe(conversion), ErrorSide::kDestination));
  return conversion;
}

// Makes the first record of this run.
absl::Status ResumableRun::Describe(const Conversion& conversion) {
  plan_ = MakeWorkPlan(conversion, /*cuts_files=*/false);
  JournaledPlan& journaled = plan_.journaled.emplace();
  journaled.fingerprint = Fingerprint(conversion, src_, options_);
  // Also if an earlier run made it: this run continues that one.
  journaled.made_directory =
      conversion.own.made_directory || !conversion.destination->exists();
  // Assigning a string literal makes g++ 12 warn of an impossible overlap.
  journaled.index_before.assign(1, '-');
  if (plan_.kind == Destination::Kind::kDcpDirectory) {
    DCP_ASSIGN_OR_RETURN(journaled.index_before, IndexDigest(fs_, dst_));
  }
  return absl::OkStatus();
}

absl::Status ResumableRun::TakeOver(Conversion& conversion,
                                    TransferSteps& steps,
                                    std::vector<ChunkDigest>& digests) {
  if (before_.has_value()) {
    DCP_RETURN_IF_ERROR(FindKept(conversion, steps.kept, digests));
  }
  journal_.num_files = conversion.plan.num_files_kept;
  steps.step_bytes = journal_.step_bytes;
  steps.on_file = [this](uint32_t number, const WrittenFile& file) {
    DCP_RETURN_IF_ERROR(
        journal_.append(WritePieceRecord({.number = number,
                                          .written = file,
                                          .bytes = plan_.pieces[number].length,
                                          .host = HostName()})));
    ++journal_.num_files;
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

absl::Status ResumableRun::FindKept(Conversion& conversion,
                                    std::vector<bool>& kept,
                                    std::vector<ChunkDigest>& digests) {
  const Output& output = conversion.output;
  ConvertPlan& plan = conversion.plan;
  kept.resize(output.files.size());
  // In an object store, other files were hidden, and ended with their process.
  const bool have_names =
      before_->plan.kind == Destination::Kind::kDcpDirectory ||
      fs_.TraitsAt(dst_).has_rename;
  for (const auto& [index, file] : before_->files) {
    if (!have_names) break;
    const FileLayout& layout = output.files[index].layout;
    const absl::StatusOr<FileInfo> info =
        fs_.Stat(conversion.destination->FilePath(layout.name()));
    if (!info.ok() || info->kind != FileKind::kFile ||
        info->size != layout.size() || !AddBeyond(file.written, conversion)) {
      continue;
    }
    kept[index] = true;
    digests.insert(digests.end(), file.written.digests.begin(),
                   file.written.digests.end());
    ++plan.num_files_kept;
    plan.bytes_kept += OutputBytes(layout, output);
  }
  if (plan.num_files_kept == before_->files.size() &&
      !before_->commit.has_value()) {
    return absl::OkStatus();
  }
  DCP_RETURN_IF_ERROR(TakeBack(before_->plan));
  for (const auto& [index, file] : before_->files) {
    if (kept[index]) {
      DCP_RETURN_IF_ERROR(journal_.append(WritePieceRecord(file)));
    }
  }
  return absl::OkStatus();
}

absl::Status ResumableRun::RecordPlan() {
  return before_.has_value() ? absl::OkStatus() : TakeBack(plan_);
}

absl::Status ResumableRun::RecordCommit(absl::string_view mark,
                                        const ConvertPlan& plan) {
  return journal_.append(
      WriteCommitRecord({.digest = Xxh3Digest(AsBytes(mark)), .plan = plan}));
}

void ResumableRun::End(const absl::Status& status, Conversion& conversion) {
  if (Keeps(status) || !TakeBack(plan_).ok()) conversion.destination->Keep();
}

}  // namespace dcp
