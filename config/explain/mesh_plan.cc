// SPDX-License-Identifier: Apache-2.0

#include "config/explain/mesh_plan.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "config/document/setting.h"
#include "dcp/base/status.h"

namespace fsdp {
namespace {

// "run.yaml:3: dp_shard_size is 3", or with `name` if there is no place.
std::string DegreeText(const Setting<int64_t>& degree, absl::string_view name) {
  const std::string where = degree.place().has_value()
                                ? to_string(*degree.place())
                                : std::string(name);
  return absl::StrCat(where, " is ", *degree);
}

absl::Status Check(const Setting<int64_t>& degree, absl::string_view name,
                   int64_t least) {
  if (*degree >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(DegreeText(degree, name), ", less than ", least));
}

// The degrees' names where nobody wrote them.
constexpr absl::string_view kReplicate = "data_parallel_replicate_degree";
constexpr absl::string_view kShard = "data_parallel_shard_degree";
constexpr absl::string_view kContext = "context_parallel_degree";
constexpr absl::string_view kTensor = "tensor_parallel_degree";
constexpr absl::string_view kPipeline = "pipeline_parallel_degree";
constexpr absl::string_view kExpert = "expert_parallel_degree";
constexpr absl::string_view kExpertTensor = "expert_tensor_parallel_degree";

absl::Status CheckDegrees(const MeshConfig& mesh) {
  for (const absl::Status& status :
       {Check(mesh.data_parallel_replicate_degree, kReplicate,
              kReplicateOverRest),
        Check(mesh.data_parallel_shard_degree, kShard, kShardWithinNode),
        Check(mesh.tensor_parallel_degree, kTensor, 1),
        Check(mesh.context_parallel_degree, kContext, 1),
        Check(mesh.pipeline_parallel_degree, kPipeline, 1),
        Check(mesh.expert_parallel_degree, kExpert, 1),
        Check(mesh.expert_tensor_parallel_degree, kExpertTensor, 1)}) {
    DCP_RETURN_IF_ERROR(status);
  }
  for (const auto& [degree, name] :
       {std::pair(mesh.data_parallel_shard_degree, kShard),
        std::pair(mesh.data_parallel_replicate_degree, kReplicate)}) {
    if (*degree != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        DegreeText(degree, name), ", which is not a number of ranks"));
  }
  return absl::OkStatus();
}

// The data parallel ranks: those that the other degrees leave.
absl::StatusOr<int64_t> DataRanks(const MeshConfig& mesh, int64_t world_size) {
  int64_t rest = world_size;
  for (const auto& [degree, name] :
       {std::pair(mesh.tensor_parallel_degree, kTensor),
        std::pair(mesh.context_parallel_degree, kContext),
        std::pair(mesh.pipeline_parallel_degree, kPipeline)}) {
    if (rest % *degree != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(DegreeText(degree, name), ", which does not divide ",
                       rest == world_size
                           ? absl::StrCat(world_size, " ranks")
                           : absl::StrCat("the ", rest,
                                          " ranks that other degrees leave of ",
                                          world_size)));
    }
    rest /= *degree;
  }
  return rest;
}

absl::Status CheckExperts(const MeshConfig& mesh, const MeshPlan& plan) {
  const Setting<int64_t>& ranks = mesh.expert_parallel_degree;
  const Setting<int64_t>& cut = mesh.expert_tensor_parallel_degree;
  if (*cut != 1 && *cut != plan.tensor_parallel) {
    return absl::InvalidArgumentError(
        absl::StrCat(DegreeText(cut, kExpertTensor), ", neither 1 nor ",
                     DegreeText(mesh.tensor_parallel_degree, kTensor)));
  }
  const int64_t available = plan.num_shards() * plan.tensor_parallel;
  if (available % *ranks == 0 && available / *ranks % *cut == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      DegreeText(ranks, kExpert),
      *cut == 1 ? "" : absl::StrCat(" and ", DegreeText(cut, kExpertTensor)),
      ": experts are divided among the ", available,
      " ranks of shards, context and tensor parallelism, which that does not "
      "divide"));
}

absl::Status CheckShards(const MeshConfig& mesh, const MeshPlan& plan) {
  const bool is_cut = plan.replicate * plan.tensor_parallel > 1;
  if (!*mesh.requires_shards || plan.num_shards() > 1 || !is_cut) {
    return absl::OkStatus();
  }
  const Setting<int64_t>& taker = plan.tensor_parallel > 1
                                      ? mesh.tensor_parallel_degree
                                      : mesh.data_parallel_replicate_degree;
  return absl::InvalidArgumentError(absl::StrCat(
      DegreeText(taker, plan.tensor_parallel > 1 ? kTensor : kReplicate),
      ", which leaves FSDP no ranks to shard over"));
}

absl::Status DoNotMultiply(const MeshConfig& mesh, int64_t world_size,
                           int64_t local_world_size) {
  std::string degrees =
      absl::StrCat(DegreeText(mesh.data_parallel_replicate_degree, kReplicate),
                   ", ", DegreeText(mesh.data_parallel_shard_degree, kShard),
                   ", ", DegreeText(mesh.tensor_parallel_degree, kTensor));
  for (const auto& [degree, name] :
       {std::pair(mesh.context_parallel_degree, kContext),
        std::pair(mesh.pipeline_parallel_degree, kPipeline)}) {
    if (*degree != 1) absl::StrAppend(&degrees, ", ", DegreeText(degree, name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(degrees, ": they do not multiply to ", world_size, " ranks",
                   *mesh.data_parallel_shard_degree == kShardWithinNode
                       ? absl::StrCat(" (", local_world_size, " on a machine)")
                       : ""));
}

}  // namespace

absl::StatusOr<MeshPlan> plan_mesh(const MeshConfig& mesh, int64_t world_size,
                                   int64_t local_world_size) {
  DCP_RETURN_IF_ERROR(CheckDegrees(mesh));
  DCP_ASSIGN_OR_RETURN(const int64_t data_ranks, DataRanks(mesh, world_size));
  MeshPlan plan{.pipeline_parallel = *mesh.pipeline_parallel_degree,
                .replicate = *mesh.data_parallel_replicate_degree,
                .shard = *mesh.data_parallel_shard_degree,
                .context_parallel = *mesh.context_parallel_degree,
                .tensor_parallel = *mesh.tensor_parallel_degree,
                .expert_parallel = *mesh.expert_parallel_degree,
                .expert_tensor_parallel = *mesh.expert_tensor_parallel_degree};
  if (plan.shard == kShardWithinNode) {
    // A machine's ranks, divided by those that share layers and sequences.
    const int64_t inner = plan.context_parallel * plan.tensor_parallel;
    plan.shard =
        local_world_size % inner == 0 ? local_world_size / inner : data_ranks;
    plan.replicate = kReplicateOverRest;
  }
  if (plan.shard == kShardOverRest) {
    if (plan.replicate == kReplicateOverRest) plan.replicate = 1;
    plan.shard = data_ranks / plan.replicate;
  } else if (plan.replicate == kReplicateOverRest) {
    plan.replicate = data_ranks / plan.shard;
  }
  if (plan.shard <= 0 || plan.replicate <= 0 || plan.replicate > data_ranks ||
      plan.shard != data_ranks / plan.replicate ||
      data_ranks % plan.replicate != 0) {
    return DoNotMultiply(mesh, world_size, local_world_size);
  }
  DCP_RETURN_IF_ERROR(CheckExperts(mesh, plan));
  DCP_RETURN_IF_ERROR(CheckShards(mesh, plan));
  return plan;
}

}  // namespace fsdp
