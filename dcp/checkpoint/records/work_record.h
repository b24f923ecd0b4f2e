// SPDX-License-Identifier: Apache-2.0
// WorkPlan and PieceRecord: the plan of a conversion or a verify, and the
// durable pieces, for later runs and other workers. As values and as text. A
// conversion by one process has one share, and the pieces are whole files.
// work_records.h keeps the texts in a directory, convert_journal.h in the
// daemon's journal. Pure; any thread.
#ifndef DCP_CHECKPOINT_RECORDS_WORK_RECORD_H_
#define DCP_CHECKPOINT_RECORDS_WORK_RECORD_H_

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

// In addition, for a run with a journal.
struct JournaledPlan {
  uint64_t fingerprint = 0;  // of everything that determines the files
  bool made_directory = false;
  std::string index_before = {};  // IndexDigest of the replaced checkpoint

  friend bool operator==(const JournaledPlan&, const JournaledPlan&) = default;
};

// The same for all workers or runs.
struct WorkPlan {
  std::string id = {};  // see PlanId; with a journal, the save id
  DestinationKind kind = DestinationKind::kFile;
  // Names, relative to the destination, and the pieces of these files.
  std::vector<std::string> files = {};
  std::vector<FilePiece> pieces = {};
  std::optional<JournaledPlan> journaled = std::nullopt;
  // For a verify: the numbers of the index. There are no `files` then, because
  // nothing is written except for records.
  std::optional<VerifyReport> verify = std::nullopt;

  friend bool operator==(const WorkPlan&, const WorkPlan&) = default;
};

// A piece. The bytes are durable, or have been verified.
struct PieceRecord {
  uint32_t number = 0;  // in the plan
  WrittenFile written = {};
  // The source check for this piece and those that were moved with it; the
  // other records do not repeat it. `parts` have to be put together with those
  // from other workers.
  SourceCheckReport check = {};
  std::vector<StretchPart> parts = {};
  std::vector<uint32_t> moved_with = {};
  uint64_t bytes = 0;  // of the piece
  uint64_t milliseconds = 0;
  std::string host = {};
  // In an object store: the id of the hidden file, for FileSystem::Adopt; empty
  // if the file is visible.
  std::string upload = {};
  std::optional<VerifyReport> verified = std::nullopt;  // by a verify
};

std::string WritePlanRecord(const WorkPlan& plan);
// DataLoss for text that WritePlanRecord does not write; FailedPrecondition for
// another version.
absl::StatusOr<WorkPlan> ParsePlanRecord(absl::string_view text);

std::string WritePieceRecord(const PieceRecord& record);
// The same for the record of a piece of `plan`.
absl::StatusOr<PieceRecord> ParsePieceRecord(absl::string_view text,
                                             const WorkPlan& plan);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_RECORDS_WORK_RECORD_H_
