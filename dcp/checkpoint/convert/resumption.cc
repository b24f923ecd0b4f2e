// SPDX-License-Identifier: Apache-2.0
// [Note: taking back] Records must not outlive the files that they describe: a
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
#include "dcp/checkpoint/convert/plan_id.h"
#include "dcp/checkpoint/convert/prepare_conversion.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/plan_destination.h"

namespace dcp {
namespace {

// The fingerprint of everything that decides which bytes go where.
uint64_t Fingerprint(const Conversion& conversion, absl::string_view src,
                     const ConvertOptions& options) {
  return Xxh3Digest(AsBytes(
      absl::StrCat(src, "\n", options.journal->source_version, "\n",
                   PlanText(conversion, options, SourceView::kThisMachine))));
}

// Whether the record of a file can be true: its payloads are among those of
// this run, whose plan is the same.
bool Fits(const WrittenFile& file, const Output& output) {
  return std::all_of(file.num_beyond.begin(), file.num_beyond.end(),
                     [&](const NumBeyond& beyond) {
                       return beyond.payload < output.payloads.size();
                     });
}

// What was read and written for a file.
uint64_t BytesOf(const FileLayout& layout, const Output& output) {
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
absl::Status ResumableRun::TakeBack(const JournaledRun& run) {
  return journal_.append(PlanRecord(run));
}

// Removes what the run wrote.
absl::Status ResumableRun::Discard(const JournaledRun& run) {
  DCP_RETURN_IF_ERROR(TakeBack(run));
  absl::StatusOr<std::unique_ptr<Destination>> destination =
      PlanDestination(fs_, dst_, run.kind, /*overwrite=*/true, run.own);
  if (destination.ok()) (*destination)->Discard();
  return absl::OkStatus();
}

absl::Status ResumableRun::ReadRecords() {
  DCP_ASSIGN_OR_RETURN(before_, ParseConvertRecords(journal_.before));
  if (!before_.has_value()) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(committed_, WasCommitted(fs_, dst_, *before_));
  if (committed_ || before_->kind != Destination::Kind::kDcpDirectory) {
    return absl::OkStatus();
  }
  DCP_ASSIGN_OR_RETURN(const std::string index, IndexDigest(fs_, dst_));
  if (index == before_->index_before) return absl::OkStatus();
  // Another checkpoint has appeared, on a disk perhaps with files of the same
  // names.
  if (!fs_.TraitsAt(dst_).has_rename) DCP_RETURN_IF_ERROR(Discard(*before_));
  before_.reset();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ConvertPlan>> ResumableRun::FinishEarlier() {
  DCP_RETURN_IF_ERROR(ReadRecords());
  if (!committed_) return std::nullopt;
  // The run that made the checkpoint was killed before it said so.
  before_->own.has_committed = true;
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<Destination> destination,
                       PlanDestination(fs_, dst_, before_->kind,
                                       /*overwrite=*/true, before_->own));
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
  if (conversion.ok() && run_.fingerprint == before_->fingerprint) {
    return conversion;
  }
  // And the lock, for Discard.
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
  DCP_ASSIGN_OR_RETURN(Conversion conversion,
                       PrepareConversion(fs_, src_, dst_, options_, before));
  DCP_RETURN_IF_ERROR(WithSide(Describe(conversion), ErrorSide::kDestination));
  return conversion;
}

// Fills in what the first record of this run says.
absl::Status ResumableRun::Describe(const Conversion& conversion) {
  run_ = JournaledRun();
  run_.fingerprint = Fingerprint(conversion, src_, options_);
  run_.kind = conversion.target.kind;
  run_.own = conversion.own;
  // Also true if an earlier run made it, whose identity this run has taken
  // over.
  run_.own.made_directory |= !conversion.destination->exists();
  for (const OutputFile& file : conversion.output.files) {
    run_.own.names.push_back(file.layout.name());
  }
  // Assigning a string literal makes g++ 12 warn of an impossible overlap.
  run_.index_before.assign(1, '-');
  if (run_.kind == Destination::Kind::kDcpDirectory) {
    DCP_ASSIGN_OR_RETURN(run_.index_before, IndexDigest(fs_, dst_));
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
    DCP_RETURN_IF_ERROR(journal_.append(FileRecord(number, file)));
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
  // In an object store the others were hidden, and ended with their process.
  const bool have_names = before_->kind == Destination::Kind::kDcpDirectory ||
                          fs_.TraitsAt(dst_).has_rename;
  for (const auto& [index, file] : before_->files) {
    if (!have_names) break;
    const FileLayout& layout = output.files[index].layout;
    const absl::StatusOr<FileInfo> info =
        fs_.Stat(conversion.destination->FilePath(layout.name()));
    if (!info.ok() || info->kind != FileKind::kFile ||
        info->size != layout.size() || !Fits(file, output)) {
      continue;
    }
    kept[index] = true;
    digests.insert(digests.end(), file.digests.begin(), file.digests.end());
    for (const NumBeyond& beyond : file.num_beyond) {
      conversion.num_beyond[beyond.payload] += beyond.count;
    }
    ++plan.num_files_kept;
    plan.bytes_kept += BytesOf(layout, output);
  }
  if (plan.num_files_kept == before_->files.size() &&
      !before_->commit.has_value()) {
    return absl::OkStatus();
  }
  DCP_RETURN_IF_ERROR(TakeBack(*before_));
  for (const auto& [index, file] : before_->files) {
    if (kept[index]) {
      DCP_RETURN_IF_ERROR(journal_.append(FileRecord(index, file)));
    }
  }
  return absl::OkStatus();
}

absl::Status ResumableRun::RecordPlan() {
  return before_.has_value() ? absl::OkStatus()
                             : journal_.append(PlanRecord(run_));
}

absl::Status ResumableRun::RecordCommit(absl::string_view mark,
                                        const ConvertPlan& plan) {
  return journal_.append(
      CommitRecord({.digest = Xxh3Digest(AsBytes(mark)), .plan = plan}));
}

void ResumableRun::End(const absl::Status& status, Conversion& conversion) {
  if (Keeps(status) || !TakeBack(run_).ok()) conversion.destination->Keep();
}

}  // namespace dcp
