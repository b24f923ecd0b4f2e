// SPDX-License-Identifier: Apache-2.0
// RankStream: payload from rank 0 to another rank, as one byte stream in
// messages of bounded size, two in flight. Both ends know the stream's length.
// A message ends with a byte that says whether rank 0 is well; after a message
// from a failed rank 0, no other follows. Each end is used by one thread at a
// time.
#ifndef FSDP_CHECKPOINT_RANKS_RANK_STREAM_H_
#define FSDP_CHECKPOINT_RANKS_RANK_STREAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"

namespace fsdp {

class RankStreamWriter {
 public:
  // `coordinator` outlives this.
  RankStreamWriter(ProcessGroupCoordinator& coordinator, int64_t dst,
                   uint64_t num_bytes, uint64_t window_bytes);

  // Copies `bytes`.
  absl::Status Write(dcp::ByteSpan bytes);
  // Waits until everything is sent; all bytes must have been written.
  absl::Status Finish();
  // Call it instead of Finish to tell the reader that nothing more comes.
  void Abandon();

 private:
  absl::Status SendMessage(bool is_well);

  ProcessGroupCoordinator& coordinator_;
  const int64_t dst_;
  uint64_t num_left_;  // not sent yet
  const uint64_t window_bytes_;
  std::array<std::vector<uint8_t>, 2> buffers_;
  std::array<ProcessGroupCoordinator::Transfer, 2> transfers_;
  size_t current_ = 0;
  uint64_t num_filled_ = 0;  // in the current buffer, without the last byte
};

// Rank 0's streams to all other ranks.
class RankStreams {
 public:
  // `num_bytes` has the stream length for each rank; rank 0's is unused.
  // `coordinator` outlives this.
  RankStreams(ProcessGroupCoordinator& coordinator,
              absl::Span<const uint64_t> num_bytes, uint64_t window_bytes);

  // `rank` is not 0.
  RankStreamWriter& To(size_t rank) { return *writers_[rank - 1]; }

  // If `status` is OK, waits until everything is sent; else tells the readers
  // that nothing more comes. Returns the first error.
  absl::Status End(absl::Status status);

 private:
  std::vector<std::unique_ptr<RankStreamWriter>> writers_;
};

// The window for streams to all other ranks, so that the messages in flight
// take about `budget_bytes` on rank 0. A multiple of 16.
uint64_t StreamWindowBytes(uint64_t budget_bytes, int64_t num_ranks);

// Calls `take` for each piece of the stream, in order; pieces are aligned for
// any type, and all but the last have `window_bytes`. An error from `take` is
// the result, but the stream is still read to the end. Aborted when rank 0
// abandoned the stream; rank 0 reports the cause.
absl::Status ReadRankStream(
    ProcessGroupCoordinator& coordinator, uint64_t num_bytes,
    uint64_t window_bytes, absl::FunctionRef<absl::Status(dcp::ByteSpan)> take);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_RANKS_RANK_STREAM_H_
