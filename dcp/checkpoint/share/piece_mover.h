// SPDX-License-Identifier: Apache-2.0
// PieceMover: moves the pieces of one share of a conversion, and records each:
// step 3 of share_convert.cc. Knows nothing about other workers. Used by one
// thread.
#ifndef DCP_CHECKPOINT_SHARE_PIECE_MOVER_H_
#define DCP_CHECKPOINT_SHARE_PIECE_MOVER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/conversion.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/records/work_records.h"
#include "dcp/checkpoint/share/piece_chunks.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"

namespace dcp {

class PieceMover {
 public:
  // All must outlive this. `destination` only names files.
  PieceMover(FileSystem& fs, absl::string_view dst, Destination& destination,
             Conversion& conversion, ConvertOptions& options,
             const WorkPlan& plan, WorkRecords& records)
      : fs_(fs),
        dst_(dst),
        destination_(destination),
        conversion_(conversion),
        options_(options),
        plan_(plan),
        records_(records),
        cuts_files_(fs.TraitsAt(dst).has_rename),
        stats_(options.stats != nullptr ? *options.stats : own_stats_) {}
  PieceMover(const PieceMover&) = delete;
  PieceMover& operator=(const PieceMover&) = delete;

  // Moves the pieces with these numbers, some `group_bytes` at a time. Calls
  // `on_begin` before payload moves, with the bytes to write.
  absl::Status Move(absl::Span<const uint32_t> pieces, uint64_t group_bytes,
                    absl::FunctionRef<void(uint64_t num_bytes)> on_begin);
  // Removes the uploads of files that another worker has recorded: nobody
  // publishes them.
  void RemoveUploads();

  uint32_t num_recorded() const { return num_recorded_; }

 private:
  absl::Status CheckPieceTies(absl::Span<const uint32_t> pieces);
  absl::Status MoveGroup(absl::Span<const uint32_t> group);
  // Steps that move the pieces of `group` and no others, and fill `records`.
  TransferSteps GroupSteps(absl::Span<const uint32_t> group,
                           std::vector<PieceRecord>& records);
  std::string DataDirectory() const;

  FileSystem& fs_;
  const std::string dst_;
  Destination& destination_;
  Conversion& conversion_;
  ConvertOptions& options_;
  const WorkPlan& plan_;
  WorkRecords& records_;
  const bool cuts_files_;  // otherwise each file is one piece
  std::optional<PieceChunks> chunks_;
  KeptLanes lanes_;                   // from one group to the next
  bool at_once_ = false;              // the pieces move in one group
  std::vector<HiddenFile> released_;  // by this worker
  uint32_t num_recorded_ = 0;
  TransferStats own_stats_;
  TransferStats& stats_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_PIECE_MOVER_H_
