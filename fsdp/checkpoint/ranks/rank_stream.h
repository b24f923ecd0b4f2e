// RankStream: payload from rank 0 to another rank, as one stream of bytes whose
// length both know, in messages of bounded size, two of them in flight. A
// message begins with a byte that says whether rank 0 is well; after one that
// says no, there are no more. Each end is used by one thread at a time.
#ifndef FSDP_CHECKPOINT_RANKS_RANK_STREAM_H_
#define FSDP_CHECKPOINT_RANKS_RANK_STREAM_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
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
  uint64_t num_filled_ = 0;  // of the current buffer, without its first byte
};

// Calls `take` for each piece of the stream, in order. An error of `take` is
// the result, but the stream is still read to its end. Aborted when rank 0
// abandoned the stream; rank 0 reports the cause.
absl::Status ReadRankStream(
    ProcessGroupCoordinator& coordinator, uint64_t num_bytes,
    uint64_t window_bytes, absl::FunctionRef<absl::Status(dcp::ByteSpan)> take);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_RANKS_RANK_STREAM_H_
