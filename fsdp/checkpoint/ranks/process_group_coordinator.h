// SPDX-License-Identifier: Apache-2.0
// ProcessGroupCoordinator: Coordinator over c10d, in a separate Gloo group, so
// that calls, which may come from another thread, never interleave with
// training's collectives. It also has the few exchanges that loading from one
// rank and pre-emption need. Used by one thread at a time; every rank makes the
// same calls in the same order. After a rank has died, or has not come within
// the timeout that the job's group has, every call fails (DeadlineExceeded,
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
  // For the ranks in `group`; null: the default group's, or only this process
  // if there is none. `purpose` is for errors. Collective over those ranks.
  static absl::StatusOr<std::unique_ptr<ProcessGroupCoordinator>> Make(
      const ProcessGroup& group, const std::string& purpose);

  // A group's coordinator for the thread that trains. The first call for a
  // group makes it and is collective; it is kept from then on. Owners: the
  // cache and the caller.
  static absl::StatusOr<std::shared_ptr<ProcessGroupCoordinator>> ForTraining(
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
