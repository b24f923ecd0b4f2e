// ProcessGroupCoordinator: Coordinator over c10d, in a Gloo group of its own,
// so that its steps, which may come from another thread, never interleave with
// the collectives of training; and the few exchanges more that loading from
// one rank and pre-emption need. Used by one thread at a time; the same calls
// in the same order on every rank. A rank that does not come in the timeout of
// the job's group, or has died, is an error of every call after it
// (DeadlineExceeded, Unavailable).
#ifndef DCP_TORCH_PROCESS_GROUP_COORDINATOR_H_
#define DCP_TORCH_PROCESS_GROUP_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/checkpoint/coordinator.h"
#include "fsdp/process_group.h"

namespace dcp {

class ProcessGroupCoordinator final : public Coordinator {
 public:
  // For the ranks of `group`; null: of the default group, or this process
  // alone where there is none. `purpose` is for errors. Collective over those
  // ranks.
  static absl::StatusOr<std::unique_ptr<ProcessGroupCoordinator>> Make(
      const fsdp::ProcessGroup& group, const std::string& purpose);

  // One that is made at the first call for a group and kept for the thread
  // that trains. Collective at first. Owners: the cache and the caller.
  static absl::StatusOr<std::shared_ptr<ProcessGroupCoordinator>> OfTraining(
      const fsdp::ProcessGroup& group);

  int64_t rank() const override;
  int64_t num_ranks() const override;
  absl::StatusOr<std::vector<std::string>> Gather(std::string value) override;
  absl::StatusOr<std::string> Scatter(std::vector<std::string> values) override;

  // Rank 0's value, on every rank.
  absl::StatusOr<std::string> Broadcast(std::string value);
  // Whether any rank says so, on every rank.
  absl::StatusOr<bool> Any(bool mine);

  // Between two ranks, in the order of the calls. Memory is the caller's and
  // stays until Wait; `Wait` of a default-made transfer returns at once.
  class Transfer {
   public:
    Transfer() = default;
    absl::Status Wait();

   private:
    friend class ProcessGroupCoordinator;
    Transfer(c10::intrusive_ptr<c10d::Work> work, fsdp::ProcessGroup group)
        : work_(std::move(work)), group_(std::move(group)) {}
    c10::intrusive_ptr<c10d::Work> work_;
    fsdp::ProcessGroup group_;
  };
  absl::StatusOr<Transfer> Send(int64_t dst, ByteSpan bytes);
  absl::StatusOr<Transfer> Receive(int64_t src, MutableByteSpan bytes);

 private:
  explicit ProcessGroupCoordinator(fsdp::ProcessGroup group)
      : group_(std::move(group)) {}

  c10d::Backend& gloo() const;

  fsdp::ProcessGroup group_;  // null: alone
};

}  // namespace dcp

#endif  // DCP_TORCH_PROCESS_GROUP_COORDINATOR_H_
