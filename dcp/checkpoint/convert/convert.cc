// SPDX-License-Identifier: Apache-2.0
// In the order of time:
//   1. prepare_conversion.cc plans everything; with a journal, resumption.cc
//   finds what
//      an earlier run has done
//   2. the payload moves: into the files of the destination, or into a stream
//   3. the source is checked: its checksums, and that nobody wrote to it
//   4. the commit; for a stream, its last bytes
#include "dcp/checkpoint/convert/convert.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/cast_losses.h"
#include "dcp/checkpoint/convert/held_back_stream.h"
#include "dcp/checkpoint/convert/prepare_conversion.h"
#include "dcp/checkpoint/convert/resumption.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/folders.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/checkpoint/write/image_stream.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/io/pipeline.h"

namespace dcp {
namespace {

// One conversion after it has been planned.
class Converter {
 public:
  // `run` is null without a journal.
  Converter(FileSystem& fs, ConvertOptions& options, Conversion& conversion,
            ResumableRun* run)
      : fs_(fs),
        options_(options),
        conversion_(conversion),
        run_(run),
        stats_(options.stats != nullptr ? *options.stats : own_stats_) {}

  absl::Status Run() {
    TransferSteps steps;
    if (run_ != nullptr) {
      DCP_RETURN_IF_ERROR(run_->TakeOver(conversion_, steps, digests_));
    }
    if (options_.on_plan != nullptr) options_.on_plan(conversion_.plan);
    if (run_ != nullptr) DCP_RETURN_IF_ERROR(run_->RecordPlan());
    const absl::Status status =
        options_.stream != nullptr ? IntoStream() : IntoFiles(steps);
    if (!status.ok() && run_ != nullptr) run_->End(status, conversion_);
    return status;
  }

 private:
  absl::Status IntoFiles(TransferSteps& steps) {
    DCP_RETURN_IF_ERROR(
        WithSide(conversion_.destination->Begin(
                     KeptNames(steps.kept), OutputFolders(conversion_.output)),
                 ErrorSide::kDestination));
    absl::StatusOr<std::vector<ChunkDigest>> more = TransferImages(
        fs_, conversion_.output, *conversion_.destination,
        TransferOptions(run_ != nullptr ? &steps : nullptr), stats_);
    DCP_RETURN_IF_ERROR(CheckWhatMoved(more.status()));
    digests_.insert(digests_.end(), more->begin(), more->end());
    return Commit();
  }

  absl::Status IntoStream() {
    HeldBackStream held(options_.stream, conversion_.plan.bytes_to_write);
    ByteStream into = [&held](ByteSpan bytes) { return held.Take(bytes); };
    DCP_RETURN_IF_ERROR(CheckWhatMoved(StreamImage(
        fs_, conversion_.output, into, TransferOptions(nullptr), stats_)));
    if (options_.stop.stop_requested()) {
      return absl::CancelledError("stopped before the end of the stream");
    }
    return WithSide(held.Finish(), ErrorSide::kDestination);
  }

  // The names of the files that an earlier run has completed.
  absl::flat_hash_set<std::string> KeptNames(
      const std::vector<bool>& kept) const {
    absl::flat_hash_set<std::string> names;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) names.insert(conversion_.output.files[i].layout.name());
    }
    return names;
  }

  ImageTransferOptions TransferOptions(TransferSteps* steps) {
    return {.direct = options_.direct,
            .num_lanes = conversion_.plan.num_lanes,
            .memory_bytes = conversion_.plan.memory_bytes,
            .blocks = conversion_.blocks,
            .stop = options_.stop,
            .steps = steps,
            .check = conversion_.check.get(),
            .num_beyond = &conversion_.num_beyond,
            .strict_cast = options_.strict_cast};
  }

  // The bytes have moved, or the transfer has failed with `moved`.
  absl::Status CheckWhatMoved(const absl::Status& moved) {
    conversion_.plan.cast_losses = CastLosses(conversion_);
    if (options_.strict_cast && !conversion_.plan.cast_losses.empty()) {
      return StrictCastError(conversion_.plan.cast_losses);
    }
    const absl::Status checked = moved.ok() ? CheckSums() : moved;
    // If the bytes mix two states of a file, they must not get valid checksums;
    // and if the file contradicts its own checksums, the mix is the reason.
    if (checked.ok() || absl::IsDataLoss(checked)) {
      DCP_RETURN_IF_ERROR(conversion_.source->CheckUnchanged());
      if (conversion_.companions.files != nullptr) {
        DCP_RETURN_IF_ERROR(
            WithSide(conversion_.companions.files->CheckUnchanged(),
                     ErrorSide::kSource));
      }
    }
    return checked;
  }

  absl::Status CheckSums() {
    if (conversion_.check == nullptr) return absl::OkStatus();
    const absl::Status checked = conversion_.check->Finish(
        {.memory_bytes = conversion_.plan.memory_bytes,
         .stop = options_.stop,
         .stats = &stats_},
        conversion_.plan.num_files_kept > 0 ? SourceCheck::Missing::kMovedBytes
                                            : SourceCheck::Missing::kLittle);
    conversion_.plan.check = conversion_.check->report();
    return checked;
  }

  absl::Status Commit() {
    if (options_.stop.stop_requested()) {
      return absl::CancelledError("stopped before the checkpoint appeared");
    }
    if (options_.on_commit != nullptr) options_.on_commit();
    Output& output = conversion_.output;
    Destination& destination = *conversion_.destination;
    const std::string index =
        output.index != nullptr ? output.index() : std::string();
    if (run_ != nullptr) {
      DCP_RETURN_IF_ERROR(
          WithSide(destination.SyncStaging(), ErrorSide::kDestination));
      const bool is_dcp =
          conversion_.target.kind == Destination::Kind::kDcpDirectory;
      DCP_RETURN_IF_ERROR(run_->RecordCommit(
          is_dcp ? index : WriteDigests(digests_), conversion_.plan));
    }
    return WithSide(destination.Commit(output.index_name, index,
                                       output.digests_name, digests_),
                    ErrorSide::kDestination);
  }

  FileSystem& fs_;
  ConvertOptions& options_;
  Conversion& conversion_;
  ResumableRun* const run_;
  TransferStats own_stats_;
  TransferStats& stats_;
  std::vector<ChunkDigest> digests_;  // of all files, those of earlier runs too
};

absl::StatusOr<ConvertPlan> ConvertResumably(FileSystem& fs,
                                             absl::string_view src,
                                             absl::string_view dst,
                                             ConvertOptions& options) {
  ResumableRun run(fs, src, dst, options);
  DCP_ASSIGN_OR_RETURN(std::optional<ConvertPlan> finished,
                       run.FinishEarlier());
  if (finished.has_value()) return *std::move(finished);
  DCP_ASSIGN_OR_RETURN(Conversion conversion, run.Prepare());
  DCP_RETURN_IF_ERROR(Converter(fs, options, conversion, &run).Run());
  return std::move(conversion.plan);
}

}  // namespace

absl::StatusOr<ConvertPlan> PlanConvert(FileSystem& fs, absl::string_view src,
                                        absl::string_view dst,
                                        ConvertOptions options) {
  return PlanConversion(fs, src, dst, options);
}

absl::StatusOr<ConvertPlan> ConvertCheckpoint(FileSystem& fs,
                                              absl::string_view src,
                                              absl::string_view dst,
                                              ConvertOptions options) {
  if (options.journal != nullptr) {
    return ConvertResumably(fs, src, dst, options);
  }
  DCP_ASSIGN_OR_RETURN(Conversion conversion,
                       PrepareConversion(fs, src, dst, options, nullptr));
  DCP_RETURN_IF_ERROR(Converter(fs, options, conversion, nullptr).Run());
  return std::move(conversion.plan);
}

}  // namespace dcp
