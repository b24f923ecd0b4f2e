// SPDX-License-Identifier: Apache-2.0
// RangeChecker: compares ranges of a checkpoint's files with the recorded
// checksums, and keeps the report on each piece. Used by one thread; const
// methods by any number.
#ifndef DCP_CHECKPOINT_VERIFY_RANGE_CHECKER_H_
#define DCP_CHECKPOINT_VERIFY_RANGE_CHECKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/checked_range.h"
#include "dcp/checkpoint/verify/verify_options.h"
#include "dcp/checkpoint/verify/verify_pieces.h"
#include "dcp/checkpoint/verify/verify_report.h"
#include "dcp/io/file_system.h"

namespace dcp {

class RangeChecker {
 public:
  // The result of comparisons.
  struct Outcome {
    uint64_t num_bytes = 0;
    uint64_t num_crcs = 0;
    uint64_t num_digests = 0;
    std::vector<VerifyFinding> damages;
  };

  // All must outlive this. The pieces must have been chosen.
  RangeChecker(FileSystem& fs, Checkpoint& checkpoint,
               const ChosenPieces& pieces, VerifyOptions& options)
      : fs_(fs),
        checkpoint_(checkpoint),
        pieces_(pieces),
        options_(options),
        found_(pieces.size()) {}

  // The report on a piece so far.
  VerifyReport& report(uint32_t piece) { return found_[piece]; }

  // Compares a range; `bytes` are the bytes in it.
  void Compare(const CheckedRange& range, ByteSpan bytes,
               Outcome& outcome) const;
  // Adds to a piece's report.
  void Add(Outcome outcome, uint32_t piece);

  // Leaves a range to Run, if its piece is checked here. The name must outlive
  // this.
  void AddRange(const CheckedRange& range, uint32_t piece);

  // Reads the added ranges in file order and compares them. Adds the reports on
  // the chosen pieces to `report`.
  absl::Status Run(VerifyReport& report);

 private:
  struct RangeInPiece {
    CheckedRange range;
    uint32_t piece;
  };

  VerifyFinding DamageFinding(const CheckedRange& range,
                              std::string problem) const;
  void Compare(const CheckedRange& range, uint32_t crc, uint64_t digest,
               Outcome& outcome) const;
  absl::Status DropUnreadable();
  absl::Status FinishBefore(uint32_t piece, VerifyReport& report);
  void CheckStretch(const RangeInPiece& checked, uint64_t begin,
                    ByteSpan bytes);

  FileSystem& fs_;
  Checkpoint& checkpoint_;
  const ChosenPieces& pieces_;
  VerifyOptions& options_;
  std::vector<VerifyReport> found_;   // by piece
  std::vector<RangeInPiece> ranges_;  // to be read
  uint32_t next_ = 0;                 // the first piece that is not finished
  // For the range being checked:
  uint32_t crc_ = 0;
  Digest64 digest_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_VERIFY_RANGE_CHECKER_H_
