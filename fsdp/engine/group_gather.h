// SPDX-License-Identifier: Apache-2.0
// GroupGather: gathers a group's parameters and frees them again. It knows
// whether they are gathered, and holds the gather in flight. FsdpParamGroup
// owns and calls it, in an EngineScope; see there for threads, and [Note:
// streams] in comm_context.h.
#ifndef FSDP_ENGINE_GROUP_GATHER_H_
#define FSDP_ENGINE_GROUP_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/all_gather_extension.h"
#include "fsdp/engine/comm/collectives.h"
#include "fsdp/engine/group_data.h"

namespace fsdp {

class GroupGather {
 public:
  // kShardedPostForward: freed to a smaller group's shards.
  enum class Sharding { kSharded, kShardedPostForward, kUnsharded };

  // `data` outlives it.
  explicit GroupGather(GroupData& data) : data_(data) {}
  // Frees the parameters. A gather in flight still writes, so the buffers live
  // until it is done.
  ~GroupGather();
  GroupGather(const GroupGather&) = delete;
  GroupGather& operator=(const GroupGather&) = delete;

  Sharding sharding() const { return sharding_; }
  bool pending() const { return pending_.has_value(); }
  // The next gather's process group.
  const ProcessGroup& process_group() const;

  // Starts gathering the shards; no gather may be pending.
  void Start();
  // Makes the parameters usable; the gather is pending.
  void Wait(bool in_backward);
  // Frees the gathered parameters, and returns whether there were any. With
  // `after_forward`, keeps the smaller group's shards if there is one.
  bool Reshard(bool after_forward);
  // Waits for a gather that will not be used, and drops it.
  void Drop();
  // Frees memory that sharded parameters have kept.
  void FreeKeptStorage();

 private:
  struct Input {
    at::Tensor tensor;
    c10::ScalarType dtype;  // the transfer's
    int64_t num_bytes() const {
      return tensor.numel() * static_cast<int64_t>(c10::elementSize(dtype));
    }
  };
  struct Pending {
    at::Tensor input, output;
    Work work;
    EventPtr done;
    std::vector<AllGatherExtension::Inputs> extension_inputs;
    std::vector<int64_t> offsets;  // each input's offset in a row, in bytes
    bool from_post_forward = false;
    bool alone = false;  // one rank and no custom collective: no communication
    bool in_place = false;  // the output is the only parameter's storage
    int64_t begin_us = 0;

    // The tensors that were allocated on the gather streams.
    std::vector<at::Tensor> Buffers() const;
  };

  // The process group that a gather in flight uses.
  c10d::ProcessGroup& GatherProcessGroup(const Pending& gather) const;
  void CopyIn(Pending& gather);
  void FillInput(Pending& gather, const std::vector<Input>& inputs);
  at::Tensor EmptyOutput(int64_t num_bytes, c10d::ProcessGroup& group) const;
  void Issue(Pending& gather, c10d::ProcessGroup& group);
  void Await(Pending& gather, c10d::ProcessGroup& group);
  void CopyOutAll(Pending& gather);
  void CopyOutExtension(FsdpParam& param, Pending& gather, size_t& next_input,
                        const AllGatherExtension::Inputs& inputs);
  void UnshardOnOneRank();
  void AllocateUnsharded();
  void FreeUnsharded();

  GroupData& data_;
  Sharding sharding_ = Sharding::kSharded;
  std::optional<Pending> pending_;
  bool owns_unsharded_ = false;  // else it borrows the shards' memory
  std::vector<at::Tensor> post_forward_shards_;
  EventPtr resharded_;  // to the smaller group: the next gather waits for it
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_GROUP_GATHER_H_
