// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/share/share_verify.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "dcp/checkpoint/convert/plan_id.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/records/work_records.h"
#include "dcp/checkpoint/share/work_status.h"

namespace dcp {
namespace {

// Changes with every version of this program that cuts other pieces, or finds
// something else in the same bytes.
constexpr absl::string_view kVerifiers = "verifiers 2";

void AppendItem(const StorageInfo& item, std::string& text) {
  absl::StrAppend(&text, " ", item.file, ":", item.offset, "+", item.length);
}

// Identifies everything that determines the report and the pieces. A missing
// file is a finding.
absl::StatusOr<std::string> VerifyId(FileSystem& fs,
                                     const Checkpoint& checkpoint,
                                     double sample_percent,
                                     uint64_t piece_bytes) {
  std::string text =
      absl::StrCat(kVerifiers, " ", piece_bytes, " ", sample_percent, " ",
                   FormatName(checkpoint.format()), "\n");
  const SourceFiles& files = checkpoint.files();
  std::vector<FileInfo> infos(files.names().size());
  DCP_RETURN_IF_ERROR(files.ForEach({}, [&](uint32_t i) -> absl::Status {
    const absl::StatusOr<FileInfo> info = fs.Stat(files.FullPath(i));
    if (!info.ok() && !absl::IsNotFound(info.status())) {
      return WithSide(info.status(), ErrorSide::kSource);
    }
    if (info.ok()) infos[i] = *info;
    return absl::OkStatus();
  }));
  for (uint32_t i = 0; i < infos.size(); ++i) {
    AppendFile(files.names()[i], infos[i], SourceView::kAnyMachine,
               !files.traits().has_rename, text);
  }
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    absl::StrAppend(&text, entry.fqn);
    if (entry.object() != nullptr) {
      AppendItem(entry.object()->item, text);
    } else {
      const TensorEntry& tensor = *entry.tensor();
      absl::StrAppend(&text, " ", static_cast<int>(tensor.dtype));
      for (size_t c = 0; c < tensor.boxes.size(); ++c) {
        AppendItem(tensor.locations[c].item, text);
        absl::StrAppend(&text, " ", absl::StrJoin(tensor.boxes[c].offsets, ","),
                        " ", absl::StrJoin(tensor.boxes[c].sizes, ","));
      }
    }
    text.push_back('\n');
  }
  return IdOfText(std::move(text));
}

class VerifyWorker {
 public:
  VerifyWorker(FileSystem& fs, double sample_percent,
               const ShareVerifyOptions& share)
      : fs_(fs),
        sample_percent_(sample_percent),
        share_(share),
        directory_(WithoutTrailingSlashes(share.records)) {
    pieces_.piece_bytes = share.piece_bytes;
    pieces_.choose = [this](const Checkpoint& checkpoint,
                            const VerifyReport& index,
                            absl::Span<const FilePiece> pieces) {
      absl::StatusOr<std::vector<bool>> chosen =
          Choose(checkpoint, index, pieces);
      if (chosen.ok()) return chosen;
      return absl::StatusOr<std::vector<bool>>(
          WithSide(chosen.status(), ErrorSide::kDestination));
    };
    pieces_.on_piece = [this](uint32_t piece, const VerifyReport& found) {
      return WithSide(Record(piece, found), ErrorSide::kDestination);
    };
  }

  absl::StatusOr<ShareVerifyResult> Run(absl::string_view src,
                                        VerifyOptions options) {
    options.pieces = &pieces_;
    DCP_ASSIGN_OR_RETURN(result_.report,
                         VerifyCheckpoint(fs_, src, std::move(options)));
    const absl::Status merged = Merge();
    if (!merged.ok()) return WithSide(merged, ErrorSide::kDestination);
    return std::move(result_);
  }

 private:
  absl::StatusOr<std::vector<bool>> Choose(const Checkpoint& checkpoint,
                                           const VerifyReport& index,
                                           absl::Span<const FilePiece> pieces) {
    DCP_ASSIGN_OR_RETURN(
        const std::string id,
        VerifyId(fs_, checkpoint, sample_percent_, share_.piece_bytes));
    WorkPlan plan{
        .id = id,
        .kind = DestinationKind::kDcpDirectory,
        .pieces = std::vector<FilePiece>(pieces.begin(), pieces.end()),
        .verify = index};
    const absl::Status made = fs_.MakeDirectory(directory_);
    if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
    DCP_RETURN_IF_ERROR(fs_.SyncDirectory(ParentDirectory(directory_)));
    records_.emplace(
        fs_, WorkRecords::RecordsDirectory(directory_, plan.kind, plan.id));
    DCP_RETURN_IF_ERROR(records_->CheckNoOthers(directory_));
    DCP_RETURN_IF_ERROR(records_->Begin(plan));
    DCP_ASSIGN_OR_RETURN(const std::vector<uint32_t> todo,
                         records_->Without(SharePieces(pieces, share_.share)));
    std::vector<bool> wanted(pieces.size());
    for (const uint32_t piece : todo) wanted[piece] = true;
    result_.id = plan.id;
    result_.num_pieces = static_cast<uint32_t>(pieces.size());
    plan_ = std::move(plan);
    last_ = SteadyNow();
    return wanted;
  }

  absl::Status Record(uint32_t piece, const VerifyReport& found) {
    const absl::Duration now = SteadyNow();
    PieceRecord record{.bytes = plan_.pieces[piece].length,
                       .milliseconds = static_cast<uint64_t>(
                           absl::ToInt64Milliseconds(now - last_)),
                       .host = HostName(),
                       .verified = found};
    last_ = now;
    ++result_.num_checked;
    return records_->Write(piece, std::move(record));
  }

  // Reads all findings, if all workers are done.
  absl::Status Merge() {
    DCP_ASSIGN_OR_RETURN(const bool has_all,
                         records_->HasAll(result_.num_pieces));
    if (!has_all) return absl::OkStatus();
    DCP_ASSIGN_OR_RETURN(std::optional<WorkStatus> status,
                         FindWork(fs_, directory_));
    if (!status.has_value() || !status->is_complete()) {
      return absl::FailedPreconditionError(
          absl::StrCat(records_->directory(),
                       " was removed while workers were using it; run again"));
    }
    // The records do not have the warnings about the source.
    std::vector<std::string> warnings = std::move(result_.report.warnings);
    result_.report = *std::move(status->report);
    result_.report.warnings = std::move(warnings);
    result_.is_complete = true;
    return absl::OkStatus();
  }

  FileSystem& fs_;
  const double sample_percent_;
  const ShareVerifyOptions& share_;
  const std::string directory_;  // the parent of the records' directory
  VerifyPieces pieces_;
  WorkPlan plan_;
  std::optional<WorkRecords> records_;
  absl::Duration last_;  // when the previous piece was recorded
  ShareVerifyResult result_;
};

}  // namespace

absl::StatusOr<ShareVerifyResult> ShareVerify(FileSystem& fs,
                                              absl::string_view src,
                                              VerifyOptions options,
                                              ShareVerifyOptions share) {
  const double sample_percent = options.sample_percent;
  return VerifyWorker(fs, sample_percent, share).Run(src, std::move(options));
}

}  // namespace dcp
