// SPDX-License-Identifier: Apache-2.0
// ReplicaExchange: loading when several ranks hold the same elements. One rank
// reads, and the others receive from it over the mesh's own groups, in bounded
// windows. Meshes and placements show which ranks hold the same elements. In
// Meet the ranks find out whether they load the same tensors in the same order;
// ranks that do not read for themselves. For the thread that trains; every rank
// in the coordinator makes the same calls.
#ifndef FSDP_CHECKPOINT_RANKS_REPLICA_EXCHANGE_H_
#define FSDP_CHECKPOINT_RANKS_REPLICA_EXCHANGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "fsdp/checkpoint/state/load_targets.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

class ReplicaExchange {
 public:
  // `group` has the ranks that load; plain tensors have replicas on all. Null:
  // there is only one rank. If not `enabled`, each rank reads for itself.
  // `targets` outlives this; it is null on a rank that already has an error.
  static absl::StatusOr<ReplicaExchange> Make(const LoadTargets* targets,
                                              const ProcessGroup& group,
                                              bool enabled);

  // Compares the ranks' loads. `cached_as` is a text without spaces. Replicas
  // with an equal one that is not empty read for themselves, because they read
  // the same memory. An error on any rank (`mine`) is returned on all, with
  // each rank's message. Collective.
  absl::Status Meet(dcp::Coordinator& coordinator, const absl::Status& mine,
                    absl::string_view cached_as = "");

  // Whether this rank reads the state's tensor `i` from the checkpoint.
  bool Reads(size_t i) const { return reads_[i]; }
  // In how many steps tensors are read and exchanged, on all ranks: one step is
  // exchanged while the next one is read. After Meet.
  size_t num_steps() const { return num_steps_; }
  // The step in which tensor `i` is read.
  size_t ReadStep(size_t i) const { return steps_[i]; }

  // Sends the others the tensors that this rank has read in `step`, and
  // receives theirs. Skips tensors named in `absent`. Collective.
  absl::Status Run(size_t step, const absl::flat_hash_set<std::string>& absent,
                   uint64_t window_bytes) const;

 private:
  // One mesh axis on which the tensor is replicated.
  struct Axis {
    ProcessGroup group;
    int64_t size;
    int64_t own;  // this rank's index

    friend bool operator==(const Axis&, const Axis&) = default;
  };
  struct Item {
    size_t tensor;  // index in the state
    std::vector<Axis> axes;
    std::vector<int64_t> reader;  // the reader's index on each axis
  };
  // Tensors that the same ranks replicate.
  struct Set {
    std::vector<Item> items;
    uint64_t digest = 0;  // the tensors' descriptions, hashed
    bool agreed = false;
  };

  ReplicaExchange() = default;
  void Add(size_t tensor, const ProcessGroup& group);
  void ChooseReaders(Set& set);
  std::string Greeting(const absl::Status& mine,
                       absl::string_view cached_as) const;
  void Broadcast(const Item& item, const at::Tensor& bytes) const;
  void RunSet(const Set& set, size_t step,
              const absl::flat_hash_set<std::string>& absent,
              uint64_t window_bytes) const;
  void BroadcastPacked(const std::vector<const Item*>& items,
                       uint64_t window_bytes) const;

  const LoadTargets* targets_ = nullptr;
  // By ranks. Every rank goes through the sets in this order, so that no two
  // ranks wait for each other.
  std::map<std::vector<int64_t>, Set> sets_;
  std::vector<bool> reads_;
  size_t num_steps_ = 1;
  std::vector<size_t> steps_;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_RANKS_REPLICA_EXCHANGE_H_
