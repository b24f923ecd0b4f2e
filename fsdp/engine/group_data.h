// SPDX-License-Identifier: Apache-2.0
// GroupData: the state that a parameter group's gather and reduction share:
// parameters, shards, communication and settings. FsdpParamGroup owns it; see
// there for threads.
#ifndef FSDP_ENGINE_GROUP_DATA_H_
#define FSDP_ENGINE_GROUP_DATA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Stream.h"
#include "fsdp/engine/comm/comm_context.h"
#include "fsdp/engine/data_parallel_mesh.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/policies.h"
#include "fsdp/engine/shard_buffer.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

// Decided once for a group, by fully_shard.
struct GroupConfig {
  DataParallelMesh mesh;
  c10::Device device;  // where it computes
  MixedPrecisionPolicy mp_policy;
  std::optional<CPUOffloadPolicy> offload_policy;
  ProcessGroup shard_group;         // of one rank if nothing is sharded
  ProcessGroup replicate_group;     // null without copies
  ProcessGroup post_forward_group;  // null unless resharded to fewer ranks
  // The ranks of shard_group; null unless reductions have their own group.
  ProcessGroup reduce_scatter_group = nullptr;
  // Whether a fully_shard call may take the parameters over: see ParallelParam.
  bool may_be_taken = false;

  // Where gradients are reduce-scattered.
  const ProcessGroup& reduction_group() const {
    return reduce_scatter_group ? reduce_scatter_group : shard_group;
  }
  // Where the shards are.
  c10::Device shard_device() const {
    return offload_policy.has_value() ? c10::Device(c10::kCPU) : device;
  }
};

// Changed by FSDPModule's setters.
struct GroupSettings {
  ReshardAfterForward reshard_after_forward;
  bool requires_gradient_sync = true;
  bool requires_all_reduce = true;
  bool reshard_after_backward = true;
  bool unshard_in_backward = true;
  bool force_sum_reduction = false;
  bool reduce_scatter_unused_params = false;
  bool keep_unsharded_storage = false;
  // How many reductions' inputs there may be at once; the most of all groups
  // below one root counts.
  size_t reduce_scatter_max_input_buffers = 1;
  bool allocate_from_process_group = false;
  std::optional<double> divide_factor;
  CustomAllGather custom_all_gather;
  CustomReduceScatter custom_reduce_scatter;
  std::function<void(at::Tensor)> all_reduce_hook;
  std::optional<c10::Stream> all_reduce_hook_stream;
};

struct GroupData {
  GroupData(GroupConfig group_config, std::shared_ptr<CommContext> comm_context)
      : config(std::move(group_config)), comm(std::move(comm_context)) {}

  GroupConfig config;
  GroupSettings settings;
  // Shared by the groups below one root, or below several (share_comm_ctx).
  std::shared_ptr<CommContext> comm;
  std::string name;  // below the root; empty for the root itself
  std::vector<std::unique_ptr<FsdpParam>> params;
  ShardBuffer shards;  // the shards of `params`

  // "all-gather of 'layers.3'", for errors.
  std::string Describe(const char* collective) const;
  // A buffer for a collective on `group`; for a custom collective, in ordinary
  // memory.
  at::Tensor EmptyBuffer(int64_t numel, c10::ScalarType dtype,
                         c10d::ProcessGroup& group, bool is_custom) const;
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_GROUP_DATA_H_
