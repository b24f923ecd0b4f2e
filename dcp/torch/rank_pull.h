// RankPull: payload from another rank to rank 0, as one stream of bytes of a
// length that both know, in messages of a bounded size. Rank 0 asks for each of
// them, so that it may stop, and asks for the next one while it uses the one
// before. A message begins with a byte that says whether its sender is well;
// after one that says no there are no more. Each end is used by one thread at a
// time.
#ifndef DCP_TORCH_RANK_PULL_H_
#define DCP_TORCH_RANK_PULL_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "dcp/base/bytes.h"
#include "dcp/torch/process_group_coordinator.h"

namespace dcp {

// Rank 0's end.
class RankPull {
 public:
  // `coordinator` outlives this.
  RankPull(ProcessGroupCoordinator& coordinator, int64_t src,
           uint64_t num_bytes, uint64_t window_bytes);

  // Fills `dst` with the next bytes; no more than there are. Aborted when the
  // other rank gave up: the cause is its own to tell.
  absl::Status Read(MutableByteSpan dst);
  // Instead of reading to the end: tells the other rank that there is nobody
  // who asks. After the end it does nothing.
  void Stop();

 private:
  struct Message {
    std::vector<uint8_t> buffer;  // with the first byte
    ProcessGroupCoordinator::Transfer transfer;
    uint64_t num_bytes = 0;  // that were asked for; 0: nothing is under way
  };

  absl::Status Ask(Message& message);
  absl::Status Command(uint8_t command);

  ProcessGroupCoordinator& coordinator_;
  const int64_t src_;
  uint64_t num_unasked_;
  const uint64_t window_bytes_;
  std::array<Message, 2> messages_;
  size_t current_ = 0;
  bool arrived_ = false;   // the current message
  uint64_t position_ = 0;  // in it
  bool over_ = false;      // nothing more is to be said to the other rank
};

// The other end: calls `fill` for all pieces of the stream, in order, each in
// memory of its own. Its error ends the stream and is the result. Aborted when
// rank 0 stopped: the cause is rank 0's to tell.
absl::Status ServeRankPull(
    ProcessGroupCoordinator& coordinator, uint64_t num_bytes,
    uint64_t window_bytes,
    absl::FunctionRef<absl::Status(MutableByteSpan)> fill);

}  // namespace dcp

#endif  // DCP_TORCH_RANK_PULL_H_
