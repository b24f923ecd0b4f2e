// SPDX-License-Identifier: Apache-2.0
// Checks a config's degrees, and cuts layers and experts.
//
// Tested by tests/fsdp/prepare/prepare_parallel_test.cc.
#include "fsdp/prepare/parallelize.h"

#include <algorithm>
#include <string>

#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/parallel/experts/expert_parallel.h"
#include "fsdp/parallel/experts/grouped_experts.h"
#include "fsdp/parallel/tensor/load_plan.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "fsdp/prepare/refusal.h"

namespace fsdp {
namespace {

using torch::nn::Module;

bool HasExperts(const Module& root) {
  const auto modules = root.modules();
  return std::any_of(modules.begin(), modules.end(), [](const auto& module) {
    return module->template as<GroupedExpertsImpl>() != nullptr;
  });
}

absl::Status CheckLayers(const MeshConfig& config,
                         const PrepareOptions& options) {
  const bool has_function = options.parallelize != nullptr;
  const bool has_plan = !options.parallelize_plan.empty();
  if (has_function && has_plan) {
    return absl::InvalidArgumentError(
        "PrepareOptions has parallelize and parallelize_plan, which both cut "
        "layers; leave one of them out");
  }
  const Setting<int64_t>& degree = config.tensor_parallel_degree;
  if (*degree == 1 || has_function || has_plan ||
      !config.parallelize_plan->entries().empty()) {
    return absl::OkStatus();
  }
  return Refusal(degree, "tensor_parallel_degree", "is ", *degree,
                 ", but nothing says how to cut the layers: give "
                 "PrepareOptions::parallelize_plan, for which load_plan reads "
                 "a file, or PrepareOptions::parallelize");
}

// Cuts layers by a plan.
absl::Status ApplyPlan(Module& module, const MeshConfig& config,
                       const PrepareOptions& options, const DeviceMesh& mesh,
                       std::optional<int64_t> src_data_rank) {
  const bool is_programs = !options.parallelize_plan.empty();
  const absl::Status status = CatchTorch([&] {
    parallelize_module(module, mesh,
                       is_programs
                           ? options.parallelize_plan
                           : to_parallelize_plan(*config.parallelize_plan),
                       {.src_data_rank = src_data_rank});
  });
  return dcp::Annotate(
      status, is_programs
                  ? "PrepareOptions::parallelize_plan"
                  : SettingPlace(config.parallelize_plan, "parallelize_plan"));
}

}  // namespace

absl::Status CheckParallelisms(const Module& module, const MeshConfig& config,
                               const PrepareOptions& options) {
  const Setting<int64_t>& stages = config.pipeline_parallel_degree;
  if (*stages > 1) {
    return Refusal(
        stages, "pipeline_parallel_degree", "is ", *stages,
        ", but prepare takes one module and does not split it. Split it with "
        "keep_modules (fsdp/parallel/pipeline/README.md), make the meshes with "
        "init_parallel_dims, and prepare each stage with its fsdp_mesh() as "
        "PrepareOptions::mesh");
  }
  const Setting<int64_t>& experts = config.expert_parallel_degree;
  if (*experts > 1 && !HasExperts(module)) {
    return Refusal(experts, "expert_parallel_degree", "is ", *experts,
                   ", but the ", type_name(module),
                   " has no fsdp::GroupedExperts "
                   "(fsdp/parallel/experts/README.md); write 1, or divide "
                   "experts of your own with PrepareOptions::mesh and "
                   "PrepareOptions::parallelize");
  }
  return CheckLayers(config, options);
}

absl::Status Parallelize(Module& module, const MeshConfig& config,
                         const PrepareOptions& options,
                         const ParallelDims& dims,
                         std::optional<int64_t> src_data_rank) {
  if (dims.degrees().tp > 1) {
    const DeviceMesh mesh = dims.get_mesh("tp");
    if (options.parallelize) {
      options.parallelize(module, mesh);
    } else {
      DCP_RETURN_IF_ERROR(
          ApplyPlan(module, config, options, mesh, src_data_rank));
    }
  }
  if (dims.degrees().ep == 1) return absl::OkStatus();
  return CatchTorch([&] { parallelize_experts(module, dims, src_data_rank); });
}

}  // namespace fsdp
