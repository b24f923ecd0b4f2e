// SPDX-License-Identifier: Apache-2.0
// RankPull: payload from another rank to rank 0, as one byte stream in messages
// of bounded size. Both ends know the stream's length. Rank 0 asks for each
// message, so that it can stop, and asks for the next one while it uses the one
// before. A message begins with a byte that says whether the sender is well;
// after a message from a failed sender, no other follows. Each end is used by
// one thread at a time.
#ifndef FSDP_CHECKPOINT_RANKS_RANK_PULL_H_
#define FSDP_CHECKPOINT_RANKS_RANK_PULL_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "dcp/base/bytes.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"

namespace fsdp {

// Rank 0's end.
class RankPull {
 public:
  // `coordinator` outlives this.
  RankPull(ProcessGroupCoordinator& coordinator, int64_t src,
           uint64_t num_bytes, uint64_t window_bytes);

  // Fills `dst` with the stream's next bytes; the stream must have that many
  // left. Aborted when the other rank gave up; that rank reports the cause.
  absl::Status Read(dcp::MutableByteSpan dst);
  // Stops before the end of the stream: tells the other rank to send no more.
  // After the end it does nothing.
  void Stop();

 private:
  struct Message {
    std::vector<uint8_t> buffer;  // includes the first byte
    ProcessGroupCoordinator::Transfer transfer;
    uint64_t num_bytes = 0;  // requested; 0: nothing is in flight
  };

  absl::Status Ask(Message& message);
  absl::Status Command(uint8_t command);

  ProcessGroupCoordinator& coordinator_;
  const int64_t src_;
  uint64_t num_unasked_;
  const uint64_t window_bytes_;
  std::array<Message, 2> messages_;
  size_t current_ = 0;
  bool arrived_ = false;   // the current message has
  uint64_t position_ = 0;  // in the current message
  bool over_ = false;      // the other rank expects no more commands
};

// The other end: calls `fill` for each piece of the stream, in order. An error
// from `fill` ends the stream and is the result. Aborted when rank 0 stopped;
// rank 0 reports the cause.
absl::Status ServeRankPull(
    ProcessGroupCoordinator& coordinator, uint64_t num_bytes,
    uint64_t window_bytes,
    absl::FunctionRef<absl::Status(dcp::MutableByteSpan)> fill);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_RANKS_RANK_PULL_H_
