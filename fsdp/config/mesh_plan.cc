#include "fsdp/config/mesh_plan.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "fsdp/config/document/setting.h"

namespace fsdp {
namespace {

// "run.yaml:3: dp_shard_size is 3", or with `name` if there is no place.
std::string Said(const Setting<int64_t>& degree, absl::string_view name) {
  const std::string where = degree.place().has_value()
                                ? to_string(*degree.place())
                                : std::string(name);
  return absl::StrCat(where, " is ", *degree);
}

absl::Status Check(const Setting<int64_t>& degree, absl::string_view name,
                   int64_t least) {
  if (*degree >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Said(degree, name), ", less than ", least));
}

}  // namespace

absl::StatusOr<MeshPlan> plan_mesh(const MeshConfig& mesh, int64_t world_size,
                                   int64_t local_world_size) {
  const Setting<int64_t>& replicate = mesh.data_parallel_replicate_degree;
  const Setting<int64_t>& shard = mesh.data_parallel_shard_degree;
  const Setting<int64_t>& tensor = mesh.tensor_parallel_degree;
  for (const absl::Status& status :
       {Check(replicate, "data_parallel_replicate_degree", kReplicateOverRest),
        Check(shard, "data_parallel_shard_degree", kShardWithinNode),
        Check(tensor, "tensor_parallel_degree", 1)}) {
    if (!status.ok()) return status;
  }
  if (*replicate == 0 || *shard == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        *shard == 0 ? Said(shard, "data_parallel_shard_degree")
                    : Said(replicate, "data_parallel_replicate_degree"),
        ", which is not a number of ranks"));
  }
  if (world_size % *tensor != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Said(tensor, "tensor_parallel_degree"),
                     ", which does not divide ", world_size, " ranks"));
  }
  const int64_t data_ranks = world_size / *tensor;
  MeshPlan plan{
      .replicate = *replicate, .shard = *shard, .tensor_parallel = *tensor};
  if (*shard == kShardWithinNode) {
    // The ranks of a machine, divided by those that share each layer.
    plan.shard = local_world_size % *tensor == 0 ? local_world_size / *tensor
                                                 : data_ranks;
    plan.replicate = kReplicateOverRest;
  }
  if (plan.shard == kShardOverRest) {
    if (plan.replicate == kReplicateOverRest) plan.replicate = 1;
    plan.shard = data_ranks / plan.replicate;
  } else if (plan.replicate == kReplicateOverRest) {
    plan.replicate = data_ranks / plan.shard;
  }
  if (plan.shard > 0 && plan.replicate > 0 && plan.replicate <= data_ranks &&
      plan.shard == data_ranks / plan.replicate &&
      data_ranks % plan.replicate == 0) {
    return plan;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Said(replicate, "data_parallel_replicate_degree"), ", ",
                   Said(shard, "data_parallel_shard_degree"), ", ",
                   Said(tensor, "tensor_parallel_degree"),
                   ": they do not multiply to ", world_size, " ranks",
                   *shard == kShardWithinNode
                       ? absl::StrCat(" (", local_world_size, " on a machine)")
                       : ""));
}

}  // namespace fsdp
