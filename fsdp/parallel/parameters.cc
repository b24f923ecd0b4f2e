// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/parameters.h"

#include "ATen/ops/empty.h"
#include "c10/core/GradMode.h"
#include "fsdp/engine/comm/comm_context.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/mesh/dtensor.h"

namespace fsdp {
namespace {

// This rank's part of the values in `leaf`.
at::Tensor LocalValues(const at::Tensor& leaf, const DTensorSpec& spec,
                       std::optional<int64_t> src_data_rank) {
  const c10::NoGradGuard no_grad;
  if (leaf.is_meta()) {
    return at::empty(spec.local_shape(), leaf.options().requires_grad(false));
  }
  const at::Tensor part = distribute_tensor(leaf.detach(), spec.mesh,
                                            spec.placements, src_data_rank)
                              .to_local();
  return part.is_alias_of(leaf) ? part.clone() : part.contiguous();
}

}  // namespace

void TakeOverAll(const std::vector<ParallelRequest>& requests) {
  if (requests.empty()) return;
  const auto comm = std::make_shared<CommContext>(
      requests.front().target.parallel->spec.mesh.device());
  for (const ParallelRequest& request : requests) {
    TakeOverParallel(
        request.target,
        LocalValues(request.target.leaf, request.target.parallel->spec,
                    request.src_data_rank),
        comm);
  }
}

void parallelize_parameters(
    torch::nn::Module& module, const DeviceMesh& mesh,
    const std::vector<std::pair<std::string, Placements>>& parameters,
    std::optional<int64_t> src_data_rank) {
  std::vector<ParallelRequest> requests;
  for (const auto& [name, placements] : parameters) {
    const at::Tensor* leaf = ParameterRegistry(module).find(name);
    TORCH_CHECK_VALUE(leaf != nullptr && leaf->defined(),
                      "parallelize_parameters: a ", type_name(module),
                      " has no parameter '", name, "'");
    CheckMayBeParallel(*leaf, name);
    auto parallel = std::make_shared<ParallelParam>(
        DTensorSpec{.mesh = mesh,
                    .placements = Normalized(placements, mesh, leaf->dim()),
                    .shape = leaf->sizes().vec(),
                    .stride = leaf->strides().vec()});
    for (const Placement& placement : parallel->spec.placements) {
      TORCH_CHECK_VALUE(!placement.is_partial(), "parallelize_parameters: '",
                        name, "' cannot be ", to_string(placement),
                        "; a parameter must be sharded or replicated");
    }
    requests.push_back({.target = {.leaf = *leaf,
                                   .name = name,
                                   .slots = {{&module, name}},
                                   .parallel = std::move(parallel)},
                        .src_data_rank = src_data_rank});
  }
  TakeOverAll(requests);
}

}  // namespace fsdp
