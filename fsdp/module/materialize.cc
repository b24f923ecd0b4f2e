// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/materialize.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/empty_like.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/lazy/shard_use.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/mesh_collectives.h"

namespace fsdp {
namespace {

// Parameters and buffers, each tensor once.
std::vector<std::pair<std::string, at::Tensor>> UniqueTensors(
    const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& dict : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : dict) {
      if (!item.value().defined()) continue;
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      tensors.emplace_back(item.key(), item.value());
    }
  }
  return tensors;
}

// Whether all ranks in `group` have the same index on every axis that shards.
bool HoldSamePart(const FsdpParam& param, const ProcessGroup& group) {
  const DTensor tensor = param.AsDTensor();
  const std::vector<int64_t> ranks = get_process_group_ranks(group);
  for (int64_t axis = 0; axis < tensor.device_mesh().ndim(); ++axis) {
    if (tensor.placements()[static_cast<size_t>(axis)].is_replicate()) continue;
    const std::vector<int64_t> apart =
        get_process_group_ranks(tensor.device_mesh().get_group(axis));
    const auto common =
        std::count_if(ranks.begin(), ranks.end(), [&](int64_t rank) {
          return std::find(apart.begin(), apart.end(), rank) != apart.end();
        });
    if (common > 1) return false;
  }
  return true;
}

// As PyTorch's deterministic mode does, so that nothing silently computes with
// values that nobody has set.
void FillWithNan(const at::Tensor& tensor) {
  if (tensor.is_meta() || !tensor.is_floating_point() ||
      tensor.element_size() < 2) {
    return;
  }
  NoteShardWrite(tensor);
  const c10::impl::ExcludeDispatchKeyGuard no_gather(kLazyKey);
  tensor.detach().fill_(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

void to_empty(torch::nn::Module& module, c10::Device device) {
  const at::NoGradGuard no_grad;
  // Checks that the device exists, and sets the index.
  device = at::empty({0}, at::TensorOptions(device)).device();
  std::unordered_set<const FsdpParamGroup*> done;
  for (auto& [name, tensor] : UniqueTensors(module)) {
    tensor.mutable_grad().reset();
    if (const FsdpParam* param = FsdpParam::FindByShard(tensor)) {
      if (done.insert(&param->group()).second) param->group().ToEmpty(device);
      FillWithNan(tensor);
      continue;
    }
    const at::Tensor empty =
        at::empty_like(tensor, tensor.options().device(device));
    // set_data refuses another kind of device unless the keys say it first.
    tensor.unsafeGetTensorImpl()->_change_backend_component_keys(
        empty.device());
    tensor.set_data(empty);
    FillWithNan(tensor);
  }
}

void broadcast_module(torch::nn::Module& module, const ProcessGroup& group,
                      int64_t src) {
  TORCH_CHECK_VALUE(group != nullptr, "broadcast_module: the group is null");
  TORCH_CHECK_VALUE(src >= 0 && src < group->getSize(),
                    "broadcast_module: src is ", src, ", but the group has ",
                    group->getSize(), " ranks");
  const auto tensors = UniqueTensors(module);
  for (const auto& [name, tensor] : tensors) {
    TORCH_CHECK_VALUE(!tensor.is_meta(), "broadcast_module: '", name,
                      "' is on the meta device; call fsdp::to_empty first");
    const FsdpParam* param = FsdpParam::FindByShard(tensor);
    if (param == nullptr) continue;
    TORCH_CHECK_VALUE(HoldSamePart(*param, group),
                      "broadcast_module: the ranks of ", describe(*group),
                      " hold different parts of '", name,
                      "'; give the group of the mesh's replicate axis");
  }
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_gather(kLazyKey);
  for (const auto& [name, tensor] : tensors) {
    NoteShardWrite(tensor);
    if (tensor.numel() == 0) continue;
    at::Tensor sent = tensor.detach().contiguous();
    Broadcast(sent, src, group);
    if (!sent.is_alias_of(tensor)) tensor.detach().copy_(sent);
  }
}

}  // namespace fsdp
