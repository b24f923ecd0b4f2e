// SPDX-License-Identifier: Apache-2.0
// ProcessGroupCoordinator: Coordinator over c10d, in its own Gloo group, so
// that its steps, which may come from another thread, never interleave with the
// collectives of training. It also has the few exchanges that loading from one
// rank and pre-emption need. Used by one thread at a time; every rank makes the
// same calls in the same order. After a rank has died, or has not come within
// the timeout of the job's group, every call fails (DeadlineExceeded,
// Unavailable).
#ifndef FSDP_CHECKPOINT_RANKS_PROCESS_GROUP_COORDINATOR_H_
#define FSDP_CHECKPOINT_RANKS_PROCESS_GROUP_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

class ProcessGroupCoordinator final : public dcp::Coordinator {
 public:
  // For the ranks of `group`; null: those of the default group, or this process
  // alone if there is none. `purpose` is for errors. Collective over those
  // ranks.
  static absl::StatusOr<std::unique_ptr<ProcessGroupCoordinator>> Make(
      const ProcessGroup& group, const std::string& purpose);

  // A coordinator that is made at the first call for a group, which is
  // collective, and kept for the thread that trains. Owners: the cache and the
  // caller.
  static absl::StatusOr<std::shared_ptr<ProcessGroupCoordinator>> OfTraining(
      const ProcessGroup& group);

  int64_t rank() const override;
  int64_t num_ranks() const override;
  absl::StatusOr<std::vector<std::string>> Gather(std::string value) override;
  absl::StatusOr<std::string> Scatter(std::vector<std::string> values) override;

  // Rank 0's value, on every rank.
  absl::StatusOr<std::string> Broadcast(std::string value);
  // Whether `mine` is true on any rank; the same answer on every rank.
  absl::StatusOr<bool> Any(bool mine);

  // A message between two ranks; messages arrive in the order of the calls. The
  // caller owns the memory, which must live until Wait. `Wait` of a
  // default-constructed transfer returns at once.
  class Transfer {
   public:
    Transfer() = default;
    absl::Status Wait();

   private:
    friend class ProcessGroupCoordinator;
    Transfer(c10::intrusive_ptr<c10d::Work> work, ProcessGroup group)
        : work_(std::move(work)), group_(std::move(group)) {}
    c10::intrusive_ptr<c10d::Work> work_;
    ProcessGroup group_;
  };
  absl::StatusOr<Transfer> Send(int64_t dst, dcp::ByteSpan bytes);
  absl::StatusOr<Transfer> Receive(int64_t src, dcp::MutableByteSpan bytes);

 private:
  explicit ProcessGroupCoordinator(ProcessGroup group)
      : group_(std::move(group)) {}

  c10d::Backend& gloo() const;

  ProcessGroup group_;  // null: alone
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_RANKS_PROCESS_GROUP_COORDINATOR_H_
