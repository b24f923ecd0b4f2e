// SPDX-License-Identifier: Apache-2.0
// Converts in this order:
//
//   1. prepare_conversion.cc plans everything; with a journal, resumption.cc
//      finds the files that an earlier run has completed
//   2. the payload moves: into the files of the destination, or into a stream
//   3. the source is checked: the checksums, and that nobody wrote to it
//   4. the commit; for a stream, the last bytes
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
#include "dcp/checkpoint/convert/held_back_stream.h"
#include "dcp/checkpoint/convert/moved_payload.h"
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
    ImageTransferOptions how = HowToMove();
    if (run_ != nullptr) how.steps = &steps;
    absl::StatusOr<std::vector<ChunkDigest>> more = TransferImages(
        fs_, conversion_.output, *conversion_.destination, how, stats_);
    DCP_RETURN_IF_ERROR(CheckWhatMoved(more.status()));
    digests_.insert(digests_.end(), more->begin(), more->end());
    return Commit();
  }

  absl::Status IntoStream() {
    HeldBackStream held(options_.stream, conversion_.plan.bytes_to_write);
    ByteStream into = [&held](ByteSpan bytes) { return held.Take(bytes); };
    DCP_RETURN_IF_ERROR(CheckWhatMoved(
        StreamImage(fs_, conversion_.output, into, HowToMove(), stats_)));
    if (options_.stop.stop_requested()) {
      return absl::CancelledError("stopped before the end of the stream");
    }
    return WithSide(held.Finish(), ErrorSide::kDestination);
  }

  // Names the files that an earlier run has completed.
  absl::flat_hash_set<std::string> KeptNames(
      const std::vector<bool>& kept) const {
    absl::flat_hash_set<std::string> names;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) names.insert(conversion_.output.files[i].layout.name());
    }
    return names;
  }

  ImageTransferOptions HowToMove() {
    ImageTransferOptions how = TransferOptions(options_, conversion_);
    how.check = conversion_.check.get();
    return how;
  }

  absl::Status CheckWhatMoved(const absl::Status& moved) {
    return CheckMoved(moved, options_, conversion_.check.get(),
                      conversion_.plan.num_files_kept > 0
                          ? SourceCheck::Missing::kMovedBytes
                          : SourceCheck::Missing::kLittle,
                      stats_, conversion_);
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
  std::vector<ChunkDigest> digests_;  // for all files, also from earlier runs
};

absl::StatusOr<ConvertPlan> ConvertResumably(FileSystem& fs,
                                             absl::string_view src,
                                             const DestinationPath& dst,
                                             ConvertOptions& options) {
  ResumableRun run(fs, src, dst.text(), options);
  DCP_ASSIGN_OR_RETURN(std::optional<ConvertPlan> finished,
                       run.FinishEarlier());
  if (finished.has_value()) return *std::move(finished);
  DCP_ASSIGN_OR_RETURN(Conversion conversion, run.Prepare());
  DCP_RETURN_IF_ERROR(Converter(fs, options, conversion, &run).Run());
  return std::move(conversion.plan);
}

}  // namespace

absl::StatusOr<ConvertPlan> PlanConvert(FileSystem& fs, absl::string_view src,
                                        const DestinationPath& dst,
                                        ConvertOptions options) {
  return PlanConversion(fs, src, dst, options);
}

absl::StatusOr<ConvertPlan> ConvertCheckpoint(FileSystem& fs,
                                              absl::string_view src,
                                              const DestinationPath& dst,
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
