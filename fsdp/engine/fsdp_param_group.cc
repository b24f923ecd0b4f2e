// SPDX-License-Identifier: Apache-2.0
// Shards a group's parameters, gathers and frees them, and follows changes to
// shards.
// Tested by tests/fsdp/fully_shard_test.cc.
#include "fsdp/engine/fsdp_param_group.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/mesh/collective_order.h"
#include "torch/csrc/autograd/variable.h"

namespace fsdp {

FsdpParamGroup::FsdpParamGroup(GroupConfig config,
                               ReshardAfterForward reshard_after_forward,
                               std::shared_ptr<CommContext> comm)
    : data_(std::move(config), std::move(comm)) {
  data_.settings.reshard_after_forward = reshard_after_forward;
}

void FsdpParamGroup::JoinScheduler(StepScheduler* scheduler,
                                   std::shared_ptr<CommContext> comm) {
  scheduler_ = scheduler;
  // A context reports the memory of the groups that work in it.
  if (comm != data_.comm) gather_.FreeKeptStorage();
  data_.comm = std::move(comm);
}

void FsdpParamGroup::set_keep_unsharded_storage(bool keep) {
  data_.settings.keep_unsharded_storage = keep;
  if (!keep) gather_.FreeKeptStorage();
}

bool FsdpParamGroup::IsAbove(const FsdpParamGroup& other) const {
  const std::vector<const FsdpParamGroup*>& above = other.place_.above;
  return std::find(above.begin(), above.end(), this) != above.end();
}

bool FsdpParamGroup::IsTogetherWith(const FsdpParamGroup& other) const {
  const std::vector<FsdpParamGroup*>& all = other.place_.together;
  return std::find(all.begin(), all.end(), this) != all.end();
}

bool FsdpParamGroup::ReshardsAfterForward() const {
  const ReshardAfterForward& wish = data_.settings.reshard_after_forward;
  if (!wish.is_set()) return !place_.is_root;
  const bool* value = wish.as_bool();
  return value == nullptr || *value;
}

void FsdpParamGroup::CheckGatherInStep(const std::string& reason) const {
  std::string gather = data_.Describe("all-gather");
  // Ranks that chose different dtypes would read one another's bytes wrongly.
  for (const auto& param : data_.params) {
    if (param->param_dtype() == data_.config.mp_policy.param_dtype) continue;
    absl::StrAppend(&gather, " with '", param->name(), "' in ",
                    c10::toString(param->gathered_dtype()));
  }
  CheckInStep(gather_.process_group(), data_.config.device.type(), gather,
              reason);
}

void FsdpParamGroup::AllocateShards(c10::Device device,
                                    std::vector<c10::ScalarType> dtypes) {
  const std::optional<CPUOffloadPolicy>& offload = data_.config.offload_policy;
  data_.shards.Allocate(
      this, data_.params, std::move(dtypes), device,
      /*pinned=*/device.is_cpu() && offload.has_value() && offload->pin_memory);
}

std::vector<c10::ScalarType> FsdpParamGroup::OrigDtypes() const {
  std::vector<c10::ScalarType> dtypes;
  for (const auto& param : data_.params) dtypes.push_back(param->orig_dtype());
  return dtypes;
}

void FsdpParamGroup::Shard(std::vector<std::unique_ptr<FsdpParam>> params,
                           const std::vector<at::Tensor>& buffers,
                           const FsdpParam::Ties& ties) {
  const EngineScope scope;
  data_.params = std::move(params);
  for (const at::Tensor& buffer : buffers) {
    buffers_.insert(buffer.unsafeGetTensorImpl());
  }
  const bool meta = data_.params.front()->leaf().is_meta();
  AllocateShards(meta ? c10::Device(c10::kMeta) : data_.config.shard_device(),
                 OrigDtypes());
  for (size_t i = 0; i < data_.params.size(); ++i) {
    FsdpParam& param = *data_.params[i];
    const at::Tensor padded = data_.shards.Padded(i);
    param.BindShard(padded);
    at::Tensor shard = param.geometry().WithoutPadding(padded);
    if (!meta) shard.copy_(param.geometry().CutFrom(param.whole()));
    shard.set_requires_grad(param.leaf().requires_grad());
    param.Attach(std::move(shard), ties);
    param.ResetLeaf(meta ? c10::Device(c10::kMeta) : data_.config.device,
                    param.ChooseGatheredDtype(padded.scalar_type()));
  }
}

void FsdpParamGroup::RefreshShards() {
  if (std::none_of(
          data_.params.begin(), data_.params.end(),
          [](const auto& param) { return param->ShardWasReplaced(); })) {
    return;
  }
  std::vector<at::Tensor> held;
  std::vector<c10::ScalarType> dtypes;
  for (const auto& param : data_.params) {
    at::Tensor shard = param->shard();
    TORCH_CHECK(shard.sizes() == param->geometry().local_sizes(),
                "fsdp: the shard of '", param->name(),
                "' was replaced by a tensor of shape ", shard.sizes(),
                ", but this rank's part has the shape ",
                c10::IntArrayRef(param->geometry().local_sizes()),
                ". For a whole tensor, assign the to_local() of "
                "fsdp::distribute_tensor; whole state dicts are loaded by "
                "fsdp::set_model_state_dict with full_state_dict");
    TORCH_CHECK(
        !param->is_stored() || shard.scalar_type() == param->orig_dtype(),
        "fsdp: the shard of '", param->name(), "' became ", shard.scalar_type(),
        ", but it is kept in another form (AllGatherExtension::store), as ",
        param->orig_dtype(),
        "; to() may change its device, and the model's dtype is chosen "
        "before fully_shard");
    held.push_back(shard.detach());
    dtypes.push_back(shard.scalar_type());
  }
  const c10::Device device = held.front().device();
  if (!data_.config.offload_policy.has_value() && !device.is_meta()) {
    data_.config.device = device;
  }
  gathers_must_wait_ = true;
  AllocateShards(device, std::move(dtypes));
  const c10::Device computes = device.is_meta() ? device : data_.config.device;
  for (size_t i = 0; i < data_.params.size(); ++i) {
    FsdpParam& param = *data_.params[i];
    const at::Tensor padded = data_.shards.Padded(i);
    if (!device.is_meta()) {
      param.geometry().WithoutPadding(padded).copy_(held[i]);
    }
    param.BindShard(padded);
    const c10::ScalarType gathered =
        param.ChooseGatheredDtype(padded.scalar_type());
    if (param.leaf().device() != computes ||
        param.gathered_dtype() != gathered) {
      gather_.FreeKeptStorage();
      param.ResetLeaf(computes, gathered);
    }
  }
}

void FsdpParamGroup::ToEmpty(c10::Device device) {
  const EngineScope scope;
  DropGather();
  Reshard(/*after_forward=*/false);
  gather_.FreeKeptStorage();
  gathers_must_wait_ = true;
  // With CPU offload, to_empty("cpu") says where shards lie, not where to
  // compute.
  if (!device.is_meta() && !data_.config.offload_policy.has_value()) {
    data_.config.device = device;
  }
  const c10::Device computes = device.is_meta() ? device : data_.config.device;
  AllocateShards(device.is_meta() ? device : data_.config.shard_device(),
                 OrigDtypes());
  for (size_t i = 0; i < data_.params.size(); ++i) {
    FsdpParam& param = *data_.params[i];
    param.BindShard(data_.shards.Padded(i));
    param.ResetLeaf(computes, param.gathered_dtype());
  }
}

void FsdpParamGroup::CheckReady() const {
  std::vector<std::string> on_meta;
  const FsdpParam* first = nullptr;
  for (const auto& param : data_.params) {
    if (param->padded_shard().is_meta()) on_meta.push_back(param->name());
    TORCH_CHECK(!data_.config.offload_policy.has_value() ||
                    param->padded_shard().is_cpu() || !on_meta.empty(),
                "fsdp: with CPU offload the shard of '", param->name(),
                "' must be on the CPU, but is on ",
                param->padded_shard().device());
    if (!param->requires_grad()) continue;
    if (first == nullptr) first = param.get();
    TORCH_CHECK(
        first->orig_dtype() == param->orig_dtype(),
        "fsdp: trainable parameters of one group must have one dtype: '",
        first->name(), "' is ", first->orig_dtype(), ", '", param->name(),
        "' is ", param->orig_dtype(), ". Shard them in separate calls");
  }
  TORCH_CHECK(on_meta.empty(), "fsdp: parameters are on the meta device: ",
              absl::StrJoin(on_meta, ", "),
              ". Call fsdp::to_empty(module, device) and initialise them "
              "(fsdp::init) or load a checkpoint");
}

// Replicas stay equal if they begin so, because their gradients are averaged.
void FsdpParamGroup::CheckReplicasAgree() {
  const ProcessGroup& replicas = data_.config.replicate_group;
  if (std::exchange(replicas_checked_, true) || replicas == nullptr ||
      !debug_mode()) {
    return;
  }
  std::vector<std::string> contents;
  for (const auto& param : data_.params) {
    const at::Tensor bytes =
        param->padded_shard().to(at::kCPU).contiguous().view(at::kByte);
    const std::string copy(static_cast<const char*>(bytes.const_data_ptr()),
                           bytes.nbytes());
    contents.push_back(absl::StrCat("'", param->name(), "' ",
                                    absl::Hex(std::hash<std::string>()(copy))));
  }
  CheckInStep(replicas, data_.config.device.type(),
              absl::StrCat(data_.Describe("first use"),
                           ": its shards must be equal on these replicas "
                           "(seed all ranks alike, load a checkpoint or call "
                           "fsdp::broadcast_module), with contents ",
                           absl::StrJoin(contents, ", ")),
              "the first forward");
}

void FsdpParamGroup::Unshard() {
  if (gather_.pending() || sharding() == Sharding::kUnsharded) return;
  const EngineScope scope;
  if (sharding() == Sharding::kSharded) {
    RefreshShards();
    for (const auto& param : data_.params) param->AgreeOnRequiresGrad();
    CheckReady();
    for (const auto& param : data_.params) param->RememberShard();
    shards_written_ = false;
    CheckReplicasAgree();
    if (WasWrittenSinceGathersBegan()) {
      data_.comm->BeginGathers(nullptr);
      NoteGathersBegan();
    }
  }
  gather_.Start();
}

void FsdpParamGroup::WaitForUnshard(bool in_backward) {
  if (sharding() == Sharding::kUnsharded) return;
  Unshard();
  const EngineScope scope;
  gather_.Wait(in_backward);
  CheckLoadedShardsDiffer();
}

void FsdpParamGroup::Reshard(bool after_forward) {
  const EngineScope scope;
  if (gather_.Reshard(after_forward)) kept_by_user_ = false;
}

bool FsdpParamGroup::AllTouched() const {
  return std::all_of(data_.params.begin(), data_.params.end(),
                     [](const auto& param) { return param->marks().touched; });
}

void FsdpParamGroup::NoteGathersBegan() {
  gathers_must_wait_ = false;
  for (const auto& param : data_.params) param->NoteGathersBegan();
}

bool FsdpParamGroup::WasWrittenSinceGathersBegan() const {
  return gathers_must_wait_ ||
         std::any_of(data_.params.begin(), data_.params.end(),
                     [](const auto& param) {
                       return param->WasWrittenSinceGathersBegan();
                     });
}

void FsdpParamGroup::OnShardWritten() {
  gathers_must_wait_ = true;
  if (sharding() == Sharding::kSharded && !gather_pending()) return;
  DropGather();  // it reads memory that is about to change
  shards_written_ = true;
  FsdpParam::BumpEpoch();
}

bool FsdpParamGroup::ShardsChanged() const {
  if (sharding() == Sharding::kSharded && !gather_pending()) return false;
  return shards_written_ ||
         std::any_of(
             data_.params.begin(), data_.params.end(),
             [](const auto& param) { return !param->HasRememberedShard(); });
}

// A torch::save file holds one rank's shards. If every rank has loaded the same
// file, each parameter is the same part repeated. Parameters with constant
// values, as in a norm, prove nothing.
void FsdpParamGroup::CheckLoadedShardsDiffer() {
  std::vector<std::string> same;
  bool differ = false;
  for (const auto& param : data_.params) {
    const ShardGeometry& geometry = param->geometry();
    if (!std::exchange(param->marks().loaded, false) || geometry.dim != 0)
      continue;
    // A parameter in another form may end within a rank's part.
    if (param->unsharded_numel() % (geometry.world * geometry.chunk()) != 0) {
      continue;
    }
    // Leaves out padded parts.
    const int64_t num_parts =
        geometry.sizes[0] / std::max<int64_t>(1, geometry.chunk());
    const at::Tensor parts = param->FlatUnsharded()
                                 .view({geometry.world, -1})
                                 .narrow(0, 0, num_parts);
    if (num_parts < 2 || parts.numel() == 0) continue;
    if (parts.eq(parts[0][0]).all().item<bool>()) continue;
    differ |= !parts.eq(parts[0]).all().item<bool>();
    same.push_back(absl::StrCat("'", param->name(), "'"));
  }
  if (same.empty() || differ) return;
  for (const auto& param : data_.params)
    param->marks().loaded = true;  // until corrected
  Reshard(/*after_forward=*/false);
  TORCH_CHECK(false, "fsdp: every rank has loaded the same shard of ",
              absl::StrJoin(same, ", "),
              ". A file that torch::save wrote on one rank holds that rank's "
              "shards. Save and load with fsdp::save and fsdp::load, or have "
              "each rank write and load a separate file");
}

bool FsdpParamGroup::AwaitsGradients() const {
  return std::any_of(data_.params.begin(), data_.params.end(),
                     [](const auto& param) {
                       return param->marks().used && !param->marks().fired;
                     });
}

// Considers the parameters that forward used, or, if no forward is known (a
// second backward through one graph), all that are trained.
bool FsdpParamGroup::AllGradientsArrived() const {
  const bool any_used =
      std::any_of(data_.params.begin(), data_.params.end(),
                  [](const auto& param) { return param->marks().used; });
  return std::all_of(data_.params.begin(), data_.params.end(),
                     [&](const auto& param) {
                       return param->marks().fired ||
                              !(any_used ? param->marks().used
                                         : param->leaf().requires_grad());
                     });
}

void FsdpParamGroup::ClearMarks(bool used_too) {
  for (const auto& param : data_.params) {
    param->marks().fired = false;
    if (used_too) param->marks().used = false;
  }
}

void FsdpParamGroup::PostBackward(bool at_end) {
  const EngineScope scope;
  ClearMarks(/*used_too=*/false);
  std::optional<GroupReduction::Gradients> gradients = reduction_.Take(at_end);
  if (data_.settings.reshard_after_backward) Reshard(/*after_forward=*/false);
  if (gradients.has_value()) reduction_.Reduce(*std::move(gradients));
}

void FsdpParamGroup::ResetAfterError() {
  const EngineScope scope;
  DropGather();
  reduction_.Abandon();
  for (const auto& param : data_.params) param->TakeGradient();
  ClearMarks(/*used_too=*/true);
  turn_ = {};
  awaits_finalization_ = false;
  Reshard(/*after_forward=*/false);
}

void FsdpParamGroup::DropGradients() {
  const EngineScope scope;
  reduction_.AbandonAll();
  for (const auto& param : data_.params) {
    param->shard().mutable_grad() = at::Tensor();
  }
}

const FsdpParam* FsdpParamGroup::ParamInGraph() const {
  const auto found = std::find_if(
      data_.params.begin(), data_.params.end(), [](const auto& param) {
        return param->marks().used &&
               torch::autograd::impl::try_get_grad_accumulator(param->leaf());
      });
  return found == data_.params.end() ? nullptr : found->get();
}

}  // namespace fsdp
