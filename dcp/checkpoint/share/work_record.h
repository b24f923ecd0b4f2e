// SPDX-License-Identifier: Apache-2.0
// The plan that workers of a conversion or a verify have in common, and the
// record of a piece that one of them has made durable, as values and as text.
// work_records.h keeps them in files. Pure; any thread.
#ifndef DCP_CHECKPOINT_SHARE_WORK_RECORD_H_
#define DCP_CHECKPOINT_SHARE_WORK_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/destination/replaceable.h"
#include "dcp/checkpoint/read/source_check_report.h"
#include "dcp/checkpoint/read/stretch_part.h"
#include "dcp/checkpoint/verify/verify_report.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/plan/pieces.h"

namespace dcp {

// What all workers agree on.
struct WorkPlan {
  std::string id;  // see PlanId
  DestinationKind kind = DestinationKind::kFile;
  // Names, relative to the destination, and the pieces of these files.
  std::vector<std::string> files = {};
  std::vector<FilePiece> pieces = {};
  // If the work is a verify: the numbers of the index. There are no `files`
  // then, because nothing is written except for records.
  std::optional<VerifyReport> verify = std::nullopt;

  friend bool operator==(const WorkPlan&, const WorkPlan&) = default;
};

// A piece. Its bytes are durable, or have been verified.
struct PieceRecord {
  WrittenFile written;
  // The check of the source for this piece and those that were moved with it;
  // their records do not repeat it. `parts` have to be put together with those
  // of other workers.
  SourceCheckReport check = {};
  std::vector<StretchPart> parts = {};
  std::vector<uint32_t> moved_with = {};
  uint64_t bytes = 0;  // of the piece
  uint64_t milliseconds = 0;
  std::string host;
  // In an object store: the id of the hidden file, for FileSystem::Adopt; empty
  // if the file is visible.
  std::string upload = {};
  uint64_t num_items_missed = 0;  // of a verify, as the rest
  std::vector<VerifyFinding> findings = {};
};

std::string WritePlanRecord(const WorkPlan& plan);
// DataLoss for text that WritePlanRecord does not write; FailedPrecondition for
// that of another version.
absl::StatusOr<WorkPlan> ParsePlanRecord(absl::string_view text);

std::string WritePieceRecord(const PieceRecord& record);
// The same for the record of a piece of `file`.
absl::StatusOr<PieceRecord> ParsePieceRecord(absl::string_view text,
                                             absl::string_view file);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_WORK_RECORD_H_
