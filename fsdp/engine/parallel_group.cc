// SPDX-License-Identifier: Apache-2.0
// Builds a group of one rank around a parallel parameter.
// Tested by tests/fsdp/parallel/parameters_test.cc.
#include "fsdp/engine/parallel_group.h"

#include <utility>

#include "c10/core/GradMode.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/managed_storage.h"

namespace fsdp {

void CheckMayBeParallel(const at::Tensor& tensor, const std::string& name) {
  TORCH_CHECK_VALUE(
      FsdpParam::FindByShard(tensor) == nullptr &&
          FindManagedStorage(tensor) == nullptr,
      "'", name,
      "' is under fully_shard or was made parallel already. Parallelize "
      "first, then add activation checkpointing, then call fully_shard, then "
      "build the optimizer");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.is_contiguous(), "the parameter '", name,
                              "' is not contiguous: sizes ", tensor.sizes(),
                              ", strides ", tensor.strides());
  TORCH_CHECK_VALUE(tensor.is_floating_point() || tensor.is_complex(),
                    "the parameter '", name, "' is ", tensor.scalar_type(),
                    "; only floating parameters can be made parallel");
}

void TakeOverParallel(const ParallelTarget& target, const at::Tensor& local,
                      const std::shared_ptr<CommContext>& comm) {
  const at::Tensor& leaf = target.leaf;
  const DTensorSpec& spec = target.parallel->spec;
  {
    const c10::NoGradGuard no_grad;
    leaf.set_data(local);
  }
  const DeviceMesh alone =
      DeviceMesh::from_group(self_group(), spec.mesh.device_type());
  auto state = std::make_shared<FsdpState>(
      std::vector<std::weak_ptr<torch::nn::Module>>(), comm);
  auto group = std::make_shared<FsdpParamGroup>(
      GroupConfig{.mesh = ShardingMesh(alone),
                  .device = alone.device(),
                  .mp_policy = {},
                  .offload_policy = {},
                  .shard_group = alone.get_group(),
                  .replicate_group = {},
                  .post_forward_group = {},
                  .may_be_taken = true},
      ReshardAfterForward(false), comm);
  std::vector<std::unique_ptr<FsdpParam>> params;
  params.push_back(std::make_unique<FsdpParam>(
      group.get(), leaf, target.slots,
      ShardGeometry{.sizes = local.sizes().vec(), .dim = 0}, spec,
      MixedPrecisionPolicy{}));
  params.back()->set_name(target.name);
  params.back()->set_parallel(target.parallel);
  group->set_name(target.name);
  group->Shard(std::move(params), {},
               {.owner = state, .on_gradient = [](FsdpParam& param) {
                  param.group().scheduler().OnGradient(param);
                }});
  state->set_groups({std::move(group)});
  state->AdoptChildren();
}

}  // namespace fsdp
