// SPDX-License-Identifier: Apache-2.0
// Tested by tests/dcp/checkpoint/share/share_convert_test.cc.
#include "dcp/checkpoint/share/piece_mover.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "dcp/checkpoint/convert/convert_entries.h"
#include "dcp/checkpoint/convert/moved_payload.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/interleaving.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/checkpoint/read/tie_check.h"

namespace dcp {

absl::Status PieceMover::Move(
    absl::Span<const uint32_t> pieces, uint64_t group_bytes,
    absl::FunctionRef<void(uint64_t num_bytes)> on_begin) {
  const Checkpoint& source = *conversion_.source;
  chunks_.emplace(
      source,
      EntriesToLocate(source, conversion_.selected, conversion_.plan.to),
      conversion_.output, plan_.pieces);
  DCP_RETURN_IF_ERROR(WithSide(
      conversion_.source->LocateChunks(chunks_->Needed(pieces), options_.stop),
      ErrorSide::kSource));
  uint64_t num_bytes = 0;
  for (const uint32_t piece : pieces) num_bytes += plan_.pieces[piece].length;
  on_begin(num_bytes);
  DCP_RETURN_IF_ERROR(CheckPieceTies(pieces));
  // Files that are written side by side would otherwise read the same bytes
  // again; see interleaving.h.
  at_once_ = NeedsInterleaving(conversion_.output);
  while (!pieces.empty()) {
    size_t num_pieces = 0;
    uint64_t length = 0;
    while (num_pieces < pieces.size() &&
           (at_once_ || num_pieces == 0 || length < group_bytes)) {
      length += plan_.pieces[pieces[num_pieces++]].length;
    }
    DCP_RETURN_IF_ERROR(MoveGroup(pieces.first(num_pieces)));
    pieces.remove_prefix(num_pieces);
  }
  return absl::OkStatus();
}

// The values that a mapping expects to be equal are cut into as many parts as
// there are pieces.
absl::Status PieceMover::CheckPieceTies(absl::Span<const uint32_t> pieces) {
  for (size_t i = 0; i < pieces.size();) {
    const uint32_t first = pieces[i];
    uint32_t end = first;
    for (; i < pieces.size() && pieces[i] == end; ++i) ++end;
    DCP_RETURN_IF_ERROR(CheckTies(
        fs_, *conversion_.source,
        {.memory_bytes = options_.memory_bytes,
         .stop = options_.stop,
         .parts = {.first = first,
                   .end = end,
                   .count = static_cast<uint32_t>(plan_.pieces.size())},
         .checks_padding = options_.check_padding}));
  }
  return absl::OkStatus();
}

absl::Status PieceMover::MoveGroup(absl::Span<const uint32_t> group) {
  const absl::Duration begin = SteadyNow();
  std::unique_ptr<SourceCheck> check;
  if (options_.verify) {
    DCP_ASSIGN_OR_RETURN(check,
                         SourceCheck::MakeOneOfSeveral(fs_, *conversion_.source,
                                                       chunks_->Needed(group),
                                                       chunks_->Owned(group)));
  }
  std::vector<PieceRecord> records(group.size());
  TransferSteps steps = GroupSteps(group, records);
  ImageTransferOptions how = TransferOptions(options_, conversion_);
  how.kept_lanes = &lanes_;
  how.steps = &steps;
  how.check = check.get();
  const absl::Status moved =
      TransferImages(fs_, conversion_.output, destination_, how, stats_)
          .status();
  // Parts of one item that several workers move are put together before the
  // commit. If all workers need a stripe of every item, none has whole cells.
  DCP_RETURN_IF_ERROR(CheckMoved(
      moved, options_, check.get(),
      at_once_ ? SourceCheck::Missing::kLittle : SourceCheck::Missing::kCells,
      stats_, conversion_));
  DCP_RETURN_IF_ERROR(
      WithSide(fs_.SyncDirectory(DataDirectory()), ErrorSide::kDestination));
  const auto milliseconds =
      static_cast<uint64_t>(absl::ToInt64Milliseconds(SteadyNow() - begin));
  for (size_t i = 0; i < group.size(); ++i) {
    PieceRecord& record = records[i];
    record.bytes = plan_.pieces[group[i]].length;
    record.milliseconds = milliseconds / group.size();
    record.host = HostName();
    if (i == 0 && check != nullptr) {
      record.check = check->report();
      if (!at_once_) record.parts = check->parts();
      record.moved_with.assign(group.begin() + 1, group.end());
    }
    DCP_RETURN_IF_ERROR(WithSide(records_.Write(group[i], std::move(record)),
                                 ErrorSide::kDestination));
    ++num_recorded_;
  }
  return absl::OkStatus();
}

TransferSteps PieceMover::GroupSteps(absl::Span<const uint32_t> group,
                                     std::vector<PieceRecord>& records) {
  TransferSteps steps;
  steps.step_bytes = UINT64_MAX;
  if (cuts_files_) {
    for (const uint32_t piece : group) {
      steps.pieces.push_back(plan_.pieces[piece]);
    }
    steps.on_file = [&records](uint32_t number, const WrittenFile& written) {
      records[number].written = written;
      return absl::OkStatus();
    };
    return steps;
  }
  steps.kept.assign(plan_.files.size(), true);
  for (const uint32_t piece : group) steps.kept[piece] = false;
  steps.on_file = [this, group, &records](
                      uint32_t file,
                      const WrittenFile& written) -> absl::Status {
    PieceRecord& record = records[static_cast<size_t>(
        std::find(group.begin(), group.end(), file) - group.begin())];
    record.written = written;
    if (plan_.kind == DestinationKind::kDcpDirectory) return absl::OkStatus();
    DCP_ASSIGN_OR_RETURN(HiddenFile hidden,
                         fs_.Release(destination_.FilePath(plan_.files[file])));
    record.upload = hidden.id;
    released_.push_back(std::move(hidden));
    return absl::OkStatus();
  };
  return steps;
}

std::string PieceMover::DataDirectory() const {
  const std::string staging =
      Destination::StagingPath(dst_, plan_.kind, plan_.id);
  return plan_.kind == DestinationKind::kFile ? ParentDirectory(staging)
                                              : staging;
}

void PieceMover::RemoveUploads() {
  for (const HiddenFile& file : released_) {
    fs_.RemoveHidden(file).IgnoreError();
  }
}

}  // namespace dcp
