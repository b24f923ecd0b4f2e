// SPDX-License-Identifier: Apache-2.0
// The protocol of a worker, step by step. "Synced" means that a crash after the
// step cannot undo it. D is the destination, W the records' directory. For a
// DCP directory, W and the data files are in D. Otherwise they are next to D,
// in .<name>.<id>.work and .<name>.<id>.partial.
//
//   1. Plan. Everything follows from the source, the options and the planners'
//      version, so all workers have the same plan. The name of W has its
//      id. If D holds the result of this plan, nothing is left to do.
//   2. Refuse D if something else is there, or the work of another plan. Make W
//      and the directory of the data files. Write W/plan unless it is there; it
//      must be the same.
//   3. Take the pieces of the share without a record. Compare a part of the
//      values that a mapping expects to be equal: as large a part as these
//      pieces are of all, so that all values have been compared when all pieces
//      have records. Then move these pieces: open the file, which others may
//      write at the same time; write the piece; sync the file; check the
//      source; sync the directory; write W/<piece>, synced.
//   4. If a piece has no record, end. Another worker, or a later one, goes on.
//   5. Otherwise take the lock of D, which only steps 5 and 6 need. If another
//      worker with this plan has the lock, end. If D holds the result now, do
//      step 6. Several workers may have read parts of one item of the source:
//      put the parts in the records together, and compare them with the item's
//      checksum. If it differs, remove the records of the workers that read the
//      item, and end. Check that all files are there. Write the literals that
//      need several pieces' checksums, and sync them. Make the checkpoint
//      appear as renamed_destination.cc describes.
//   6. Remove W.
//
// An object store has no renames and no locks, and a file there has one writer.
// So a piece is a whole file, and records are put. In step 3 a DCP file appears
// when it is complete; the name has the plan's id, and no index names it yet.
// Other files stay hidden, and W/<piece> says how to publish them. In step 5
// several workers may do the same at the same time: they publish the hidden
// files, each of which can be published once, and put the same index, which
// replaces only the index that was seen before. Step 6 also ends the uploads of
// dead workers.
//
// Why this is safe. A record is there only after the bytes that it describes
// are synced. Two workers on one piece, such as one that seemed dead and a new
// one, write the same bytes to the same place and nothing else, even after the
// checkpoint has appeared. The worker that writes the last record sees all
// others, so at least one worker goes on to step 5; if it dies there, the next
// run does. W is removed only when the checkpoint is durable. A worker that
// then misses W finds the checkpoint.
//
// A worker that fails removes nothing, because other workers use the files too.
#include "dcp/checkpoint/share/share_convert.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/plan_id.h"
#include "dcp/checkpoint/convert/prepare_conversion.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "dcp/checkpoint/records/work_records.h"
#include "dcp/checkpoint/share/disk_share_commit.h"
#include "dcp/checkpoint/share/piece_mover.h"
#include "dcp/checkpoint/share/share_commit.h"
#include "dcp/checkpoint/share/store_share_commit.h"

namespace dcp {
namespace {

std::unique_ptr<ShareCommit> MakeShareCommit(
    FileSystem& fs, absl::string_view dst, Conversion& conversion,
    WorkRecords& records, const WorkPlan& plan, ConvertOptions& options) {
  if (fs.TraitsAt(dst).has_rename) {
    return std::make_unique<DiskShareCommit>(fs, dst, conversion, records, plan,
                                             options);
  }
  return std::make_unique<StoreShareCommit>(fs, dst, conversion, records, plan,
                                            options);
}

// Goes through the steps.
class ShareWorker {
 public:
  ShareWorker(FileSystem& fs, absl::string_view dst, Conversion& conversion,
              ConvertOptions& options, ShareOptions& share)
      : fs_(fs),
        dst_(dst),
        conversion_(conversion),
        options_(options),
        share_(share),
        plan_(MakeWorkPlan(conversion,
                           /*cuts_files=*/fs.TraitsAt(dst).has_rename,
                           share.piece_bytes)),
        records_(fs, WorkRecords::RecordsDirectory(dst, plan_.kind, plan_.id)),
        commit_(
            MakeShareCommit(fs, dst, conversion, records_, plan_, options)) {
    result_.id = plan_.id;
    result_.num_pieces = static_cast<uint32_t>(plan_.pieces.size());
  }

  absl::StatusOr<ShareResult> Run() {
    const absl::Status status = Steps();
    if (!status.ok()) {
      // Others may have ended the work, and removed the records, in the
      // meantime.
      const bool may_be_there = absl::IsNotFound(status) ||
                                absl::IsAlreadyExists(status) ||
                                absl::IsFailedPrecondition(status);
      if (!may_be_there) return status;
      const absl::StatusOr<bool> is_there = commit_->IsThere();
      if (!is_there.ok() || !*is_there) return status;
      Finished();
    }
    if (mover_.has_value()) {
      result_.num_written = mover_->num_recorded();
      if (result_.is_complete) mover_->RemoveUploads();
    }
    result_.plan = std::move(conversion_.plan);
    return std::move(result_);
  }

 private:
  absl::Status Steps() {
    DCP_ASSIGN_OR_RETURN(bool is_there, commit_->IsThere());
    if (!is_there) {
      DCP_RETURN_IF_ERROR(WithSide(Enter(), ErrorSide::kDestination));
      // Others may have ended the work since the first look. Everything that
      // Enter made would then stay.
      DCP_ASSIGN_OR_RETURN(is_there, commit_->IsThere());
    }
    if (is_there) {
      Finished();
      return absl::OkStatus();
    }
    DCP_RETURN_IF_ERROR(MoveShare());
    DCP_ASSIGN_OR_RETURN(const bool has_all,
                         records_.HasAll(result_.num_pieces));
    if (!has_all) return absl::OkStatus();
    DCP_ASSIGN_OR_RETURN(const ShareCommit::Outcome outcome, commit_->Commit());
    result_.is_complete = outcome != ShareCommit::Outcome::kByAnother;
    result_.has_committed = outcome == ShareCommit::Outcome::kCommitted;
    return absl::OkStatus();
  }

  void Finished() {
    result_.is_complete = true;
    commit_->Clean();
  }

  // Step 2.
  absl::Status Enter() {
    DCP_RETURN_IF_ERROR(records_.CheckNoOthers(dst_));
    DCP_ASSIGN_OR_RETURN(destination_,
                         LookAtDestination(fs_, dst_, plan_.kind,
                                           options_.overwrite, commit_->Own()));
    if (plan_.kind != DestinationKind::kFile) {
      const std::string staging =
          Destination::StagingPath(dst_, plan_.kind, plan_.id);
      absl::Status made = fs_.MakeDirectory(staging);
      if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
      DCP_RETURN_IF_ERROR(fs_.SyncDirectory(ParentDirectory(staging)));
    }
    mover_.emplace(fs_, dst_, *destination_, conversion_, options_, plan_,
                   records_);
    return records_.Begin(plan_);
  }

  // Step 3.
  absl::Status MoveShare() {
    DCP_ASSIGN_OR_RETURN(
        const std::vector<uint32_t> todo,
        records_.Without(SharePieces(plan_.pieces, share_.share)));
    conversion_.plan.check.checked = options_.verify;
    if (options_.on_plan != nullptr) options_.on_plan(conversion_.plan);
    return mover_->Move(todo, share_.piece_bytes, [this](uint64_t num_bytes) {
      if (share_.on_begin != nullptr) share_.on_begin(num_bytes);
    });
  }

  FileSystem& fs_;
  const std::string dst_;
  Conversion& conversion_;
  ConvertOptions& options_;
  ShareOptions& share_;
  const WorkPlan plan_;
  WorkRecords records_;
  const std::unique_ptr<ShareCommit> commit_;
  std::unique_ptr<Destination> destination_;  // only names files
  std::optional<PieceMover> mover_;           // set by step 2
  ShareResult result_;
};

absl::Status CheckOptions(FileSystem& fs, absl::string_view dst,
                          const ConvertOptions& options,
                          const ShareOptions& share) {
  if (fs.TraitsAt(dst).in_order) {
    return absl::UnimplementedError(absl::StrCat(
        dst,
        ": workers share conversions to a file system or to s3:// only; in "
        "this store none could make appear what another has written"));
  }
  if (options.stream != nullptr || options.journal != nullptr) {
    return absl::InvalidArgumentError(
        "workers share a conversion into files, not into a stream, and without "
        "a journal");
  }
  if (options.to_dialect.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "workers cannot share the layout of ", DialectName(*options.to_dialect),
        ", which consists of several checkpoints; write it without "
        "workers, or as dcp"));
  }
  if (share.share.index >= share.share.count) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no share ", share.share.index, " of ",
                     share.share.count, "; the first is 0"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShareResult> ConvertShare(FileSystem& fs, absl::string_view src,
                                         absl::string_view dst,
                                         ConvertOptions options,
                                         ShareOptions share) {
  DCP_RETURN_IF_ERROR(CheckOptions(fs, dst, options, share));
  DCP_ASSIGN_OR_RETURN(Conversion conversion,
                       PrepareShare(fs, src, dst, options, share.piece_bytes));
  return ShareWorker(fs, dst, conversion, options, share).Run();
}

}  // namespace dcp
