// RankStream: payload from rank 0 to another rank, as one stream of bytes of a
// length that both know, in messages of a bounded size, two of them in flight.
// A message begins with a byte that says whether rank 0 is well; after one that
// says no there are no more. Each end is used by one thread at a time.
#ifndef DCP_TORCH_RANK_STREAM_H_
#define DCP_TORCH_RANK_STREAM_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "dcp/base/bytes.h"
#include "dcp/torch/process_group_coordinator.h"

namespace dcp {

class RankStreamWriter {
 public:
  // `coordinator` outlives this.
  RankStreamWriter(ProcessGroupCoordinator& coordinator, int64_t dst,
                   uint64_t num_bytes, uint64_t window_bytes);

  // Copies `bytes`.
  absl::Status Write(ByteSpan bytes);
  // Waits until all was sent; all must have been written.
  absl::Status Finish();
  // Instead of Finish: tells the reader that there is no more.
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

// Calls `take` for all pieces of the stream, in order; what it returns is the
// result, and the stream is read to its end all the same. Aborted when rank 0
// abandoned it: the cause is rank 0's to tell.
absl::Status ReadRankStream(ProcessGroupCoordinator& coordinator,
                            uint64_t num_bytes, uint64_t window_bytes,
                            absl::FunctionRef<absl::Status(ByteSpan)> take);

}  // namespace dcp

#endif  // DCP_TORCH_RANK_STREAM_H_
