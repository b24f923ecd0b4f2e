// ReplicaExchange: loading where several ranks hold the same: one of them
// reads, and the others receive it over the mesh's own groups, in bounded
// windows. Which ranks hold the same follows from meshes and placements; that
// they want the same, in the same order, they find out together at first
// (Meet), and read each for itself where they do not. For the thread that
// trains; every rank of the coordinator makes the same calls.
#ifndef DCP_TORCH_REPLICA_EXCHANGE_H_
#define DCP_TORCH_REPLICA_EXCHANGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "dcp/checkpoint/coordinator.h"
#include "dcp/torch/wanted_state.h"
#include "fsdp/process_group.h"

namespace dcp {

class ReplicaExchange {
 public:
  // `group` has the ranks that load: all hold the same plain tensors, if they
  // hold the same at all. Null: there is one rank only. Not `enabled`: each
  // rank reads for itself. `wanted` outlives this; null on a rank that comes
  // with an error.
  static absl::StatusOr<ReplicaExchange> Make(const WantedState* wanted,
                                              const fsdp::ProcessGroup& group,
                                              bool enabled);

  // Whether this and all other ranks are well so far; an error of any is
  // returned on all, with what each rank says. Collective.
  absl::Status Meet(Coordinator& coordinator, const absl::Status& mine);

  // Whether this rank is the one that gets tensor `i` of the state from the
  // checkpoint.
  bool Reads(size_t i) const { return reads_[i]; }

  // Gives the others what this rank has read, and receives. Tensors named in
  // `absent` are left out. Collective.
  absl::Status Run(const absl::flat_hash_set<std::string>& absent,
                   uint64_t window_bytes) const;

 private:
  // One mesh axis on which the tensor is replicated.
  struct Axis {
    fsdp::ProcessGroup group;
    int64_t size;
    int64_t own;  // this rank's index

    friend bool operator==(const Axis&, const Axis&) = default;
  };
  struct Item {
    size_t tensor;  // of the state
    std::vector<Axis> axes;
    std::vector<int64_t> reader;  // its index on each of the axes
  };
  // Tensors that lie on the same ranks.
  struct Set {
    std::vector<Item> items;
    uint64_t digest = 0;  // of what they are
    bool agreed = false;
  };

  ReplicaExchange() = default;
  void Add(size_t tensor, const fsdp::ProcessGroup& group);
  void ChooseReaders(Set& set);
  std::string Greeting(const absl::Status& mine) const;
  void Broadcast(const Item& item, const at::Tensor& bytes) const;
  void RunSet(const Set& set, const absl::flat_hash_set<std::string>& absent,
              uint64_t window_bytes) const;
  void BroadcastPacked(const std::vector<const Item*>& items,
                       uint64_t window_bytes) const;

  const WantedState* wanted_ = nullptr;
  // By their ranks. In this order, which is the same everywhere, a rank goes
  // through its sets, so that no two wait for each other.
  std::map<std::vector<int64_t>, Set> sets_;
  std::vector<bool> reads_;
};

}  // namespace dcp

#endif  // DCP_TORCH_REPLICA_EXCHANGE_H_
