// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/expert_parallel.h"

#include <string>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/parallel/experts/grouped_experts.h"
#include "fsdp/parallel/experts/moe.h"
#include "fsdp/parallel/parameters.h"
#include "fsdp/parallel/spmd/axis.h"

namespace fsdp {
namespace {

using torch::nn::Module;

template <typename Impl>
std::vector<std::pair<std::string, std::shared_ptr<Impl>>> Layers(
    const Module& model) {
  std::vector<std::pair<std::string, std::shared_ptr<Impl>>> layers;
  for (const auto& item : model.named_modules(/*name_prefix=*/"")) {
    if (auto layer = std::dynamic_pointer_cast<Impl>(item.value())) {
      layers.emplace_back(item.key(), std::move(layer));
    }
  }
  return layers;
}

void CheckDivides(const std::string& layer, const char* what, int64_t size,
                  const char* axis, int64_t ranks) {
  TORCH_CHECK_VALUE(size % ranks == 0, layer.empty() ? "the experts" : layer,
                    ": ", what, " (", size, ") is not divisible by ", axis,
                    " (", ranks, ")");
}

// The axes that cut experts, beginning with the axis that divides the experts
// themselves.
struct ExpertMesh {
  DeviceMesh mesh;
  bool by_expert;
  bool by_hidden;
};

std::optional<ExpertMesh> MakeExpertMesh(const ParallelDims& dims) {
  const ParallelDegrees& degrees = dims.degrees();
  if (degrees.ep > 1 && degrees.etp > 1) {
    return ExpertMesh{dims.get_mesh({"ep", "etp"}), true, true};
  }
  if (degrees.ep > 1) return ExpertMesh{dims.get_mesh("ep"), true, false};
  if (degrees.tp > 1) return ExpertMesh{dims.get_mesh("tp"), false, true};
  return std::nullopt;
}

// The placements for a weight with `hidden` as the hidden dimension.
Placements WeightPlacements(const ExpertMesh& cut, int64_t hidden) {
  Placements placements;
  if (cut.by_expert) placements.push_back(Shard(0));
  if (cut.by_hidden) placements.push_back(Shard(hidden));
  return placements;
}

}  // namespace

void parallelize_experts(Module& model, const ParallelDims& dims,
                         std::optional<int64_t> src_data_rank) {
  const std::optional<ExpertMesh> cut = MakeExpertMesh(dims);
  if (!cut.has_value()) return;
  const ParallelDegrees& degrees = dims.degrees();
  const auto layers = Layers<GroupedExpertsImpl>(model);
  for (const auto& [name, experts] : layers) {
    CheckDivides(name, "num_experts", experts->num_experts(), "ep", degrees.ep);
    if (!cut->by_hidden) continue;
    CheckDivides(name, "hidden_dim", experts->hidden_dim(),
                 cut->by_expert ? "etp" : "tp", degrees.tp);
  }
  for (const auto& [name, experts] : layers) {
    parallelize_parameters(*experts, cut->mesh,
                           {{"w1", WeightPlacements(*cut, 1)},
                            {"w2", WeightPlacements(*cut, 2)},
                            {"w3", WeightPlacements(*cut, 1)}},
                           src_data_rank);
    ExpertGroups groups;
    if (cut->by_expert) groups.ep = cut->mesh.get_group(0);
    if (cut->by_hidden) {
      groups.tp =
          spmd::InternAxis(cut->mesh[cut->mesh.mesh_dim_names().back()]);
    }
    experts->set_groups(std::move(groups));
  }
  if (degrees.tp == 1 || cut->by_hidden) return;
  for (const auto& [name, moe] : Layers<MoEImpl>(model)) {
    moe->divide_tokens_over(spmd::InternAxis(dims.get_mesh("tp")));
  }
}

std::vector<FSDPModule> fully_shard_experts(
    Module& module, const ParallelDims& dims, const FullyShardOptions& options,
    std::optional<double> gradient_divide_factor) {
  const ParallelDegrees& degrees = dims.degrees();
  const std::string shards = degrees.ep > 1 ? "efsdp" : "fsdp";
  std::vector<std::string> axes;
  if (degrees.dp_replicate > 1) axes.emplace_back("dp_replicate");
  axes.push_back(shards);
  std::vector<FSDPModule> sharded;
  for (const auto& [name, experts] : Layers<GroupedExpertsImpl>(module)) {
    FullyShardOptions own = options;
    own.mesh = dims.get_mesh(axes);
    const bool more_shards_than_experts =
        degrees.size(shards) * degrees.ep > experts->num_experts();
    if (more_shards_than_experts && !own.shard_placement_fn) {
      own.shard_placement_fn = [](const at::Tensor&) { return Shard(1); };
    }
    sharded.push_back(
        fully_shard(std::static_pointer_cast<Module>(experts), own));
    sharded.back().set_gradient_divide_factor(gradient_divide_factor.value_or(
        static_cast<double>(degrees.fsdp_gradient_divide_factor())));
  }
  return sharded;
}

void prefetch_blocks(const std::vector<std::shared_ptr<Module>>& blocks) {
  for (size_t i = 0; i + 1 < blocks.size(); ++i) {
    get_fsdp_module(*blocks[i])
        .set_modules_to_forward_prefetch(fsdp_modules(*blocks[i + 1]));
    get_fsdp_module(*blocks[i + 1])
        .set_modules_to_backward_prefetch(fsdp_modules(*blocks[i]));
  }
}

void update_expert_bias(Module& model,
                        const std::optional<DeviceMesh>& loss_mesh) {
  std::vector<std::shared_ptr<MoEImpl>> layers;
  std::vector<at::Tensor> counts;
  for (const auto& [name, moe] : Layers<MoEImpl>(model)) {
    if (!moe->expert_bias.defined()) continue;
    layers.push_back(moe);
    counts.push_back(moe->tokens_per_expert);
  }
  if (layers.empty()) return;
  const at::NoGradGuard no_grad;
  // Layers may have different expert counts.
  const at::Tensor all = at::cat(counts);
  if (loss_mesh.has_value()) {
    AllReduce(all, ReduceOp::kSum, loss_mesh->get_group());
  }
  int64_t begin = 0;
  for (const auto& moe : layers) {
    const int64_t experts = moe->tokens_per_expert.numel();
    const at::Tensor tokens = all.narrow(0, begin, experts);
    begin += experts;
    const at::Tensor delta =
        (tokens.mean() - tokens).sign() * *moe->args().load_balance_coeff;
    moe->expert_bias.add_(delta - delta.mean());
    moe->tokens_per_expert.zero_();
  }
}

}  // namespace fsdp
