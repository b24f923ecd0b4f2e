// SPDX-License-Identifier: Apache-2.0
// Attaches shards to modules and autograd, and tracks changes to them.
// Tested by tests/fsdp/reaching_parameters_test.cc.
#include "fsdp/engine/fsdp_param.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "c10/core/GradMode.h"
#include "c10/util/strides.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/module_access.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/graph_task.h"
#include "torch/csrc/autograd/variable.h"

namespace fsdp {
namespace {

// Shards by identity, to find a parameter from a plain tensor.
struct Shards {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, FsdpParam*> by_impl;

  static Shards& Get() {
    static Shards* shards = new Shards;
    return *shards;
  }
};

// Tells the engine that one parameter's gradient is complete.
class GradientArrived : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientArrived(FsdpParam* param, void (*on_gradient)(FsdpParam& param))
      : param_(param), on_gradient_(on_gradient) {}
  void operator()(const torch::autograd::Variable&) override {
    on_gradient_(*param_);
  }

 private:
  FsdpParam* const param_;
  void (*const on_gradient_)(FsdpParam& param);
};

// Ties the engine's state to a shard: the state lives as long as the registry,
// an optimizer or the user holds the shard. Called when a graph leads to the
// shard itself, not to the parameter.
class ShardHook : public torch::autograd::FunctionPreHook {
 public:
  ShardHook(std::shared_ptr<void> owner, const FsdpParam* param)
      : owner_(std::move(owner)), param_(param) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& /*grads*/) override {
    TORCH_CHECK(
        false, "fsdp: a gradient arrives at this rank's shard of '",
        param_->name(),
        "': the loss, or a forward, read this rank's part from "
        "module->parameters() as if it were the whole parameter. Read the "
        "layer's member, or put an fsdp::ForwardScope around it, in which "
        "module->parameters() are whole for every operator; detach() tensors "
        "that need no gradient");
  }

 private:
  std::shared_ptr<void> owner_;   // shared by all shards from one call
  const FsdpParam* const param_;  // owned by owner_
};

}  // namespace

UsePhase UsePhase::Now() {
  return {.backward = torch::autograd::get_current_graph_task_id() >= 0,
          .grad_enabled = c10::GradMode::is_enabled()};
}

std::atomic<uint64_t> FsdpParam::epoch_{1};

FsdpParam::FsdpParam(FsdpParamGroup* group, at::Tensor leaf,
                     std::vector<Slot> slots, ShardGeometry geometry,
                     DTensorSpec spec, const MixedPrecisionPolicy& policy)
    : group_(group),
      leaf_(std::move(leaf)),
      slots_(std::move(slots)),
      geometry_(std::move(geometry)),
      spec_(std::move(spec)),
      orig_dtype_(leaf_.scalar_type()),
      param_dtype_(policy.param_dtype),
      reduce_dtype_(policy.reduce_dtype),
      has_grad_dtype_(leaf_.grad_dtype() != orig_dtype_),
      grad_dtype_(leaf_.grad_dtype()) {
  if (policy.cast_forward_inputs) input_dtype_ = policy.param_dtype;
  in_container_ =
      std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
        return is_container_without_forward(*slot.module);
      });
}

FsdpParam::~FsdpParam() {
  if (storage_) {
    storage_->Orphan();
    DropGradientNotice();
    if (leaf_.defined()) {
      torch::autograd::impl::set_post_acc_grad_hooks(leaf_, nullptr);
    }
  }
  if (shard_.has_value()) {
    Shards& shards = Shards::Get();
    const std::lock_guard<std::mutex> lock(shards.mutex);
    shards.by_impl.erase(shard_->_unsafe_get_target());
  }
}

void FsdpParam::SetStored(at::Tensor stored) {
  own_dtype_ = leaf_.scalar_type();
  orig_dtype_ = stored.scalar_type();
  stored_ = std::move(stored);
}

c10::ScalarType FsdpParam::ChooseGatheredDtype(
    c10::ScalarType shard_dtype) const {
  return param_dtype_.value_or(own_dtype_.value_or(shard_dtype));
}

std::vector<int64_t> FsdpParam::unsharded_sizes() const {
  if (is_stored()) return leaf_.sizes().vec();
  std::vector<int64_t> sizes = geometry_.sizes;
  sizes[geometry_.dim] = geometry_.world * geometry_.chunk();
  return sizes;
}

void FsdpParam::Attach(at::Tensor shard, const Ties& ties) {
  torch::autograd::impl::add_hook(
      shard, std::make_unique<ShardHook>(ties.owner, this));
  stored_ = at::Tensor();
  shard_.emplace(shard.getIntrusivePtr());
  shard_impl_ = shard.unsafeGetTensorImpl();
  requires_grad_ = shard.requires_grad();
  {
    Shards& shards = Shards::Get();
    const std::lock_guard<std::mutex> lock(shards.mutex);
    shards.by_impl[shard.unsafeGetTensorImpl()] = this;
  }
  for (const Slot& slot : slots_) {
    ParameterRegistry(*slot.module)[slot.name] = shard;
    RefuseClone(*slot.module);
  }
  AddLazyKey(shard);
  if (has_grad_dtype_) {
    shard.set_grad_dtype(grad_dtype_);
    // The reduction casts the gradient, once.
    leaf_.set_grad_dtype(std::nullopt);
  }
  // A gradient from before the call would be reduced together with the next
  // one.
  leaf_.mutable_grad() = at::Tensor();
  torch::autograd::impl::set_post_acc_grad_hooks(
      leaf_, std::make_unique<GradientArrived>(this, ties.on_gradient));
}

bool FsdpParam::IsHeldByModuleAlone() const {
  return static_cast<size_t>(shard().use_count()) == slots_.size() + 1;
}

at::Tensor FsdpParam::Release() {
  AgreeOnRequiresGrad();
  const at::Tensor held = shard();
  DropGradientNotice();
  {
    Shards& shards = Shards::Get();
    const std::lock_guard<std::mutex> lock(shards.mutex);
    shards.by_impl.erase(held.unsafeGetTensorImpl());
  }
  storage_->Orphan();
  torch::autograd::impl::set_post_acc_grad_hooks(leaf_, nullptr);
  leaf_.mutable_grad() = at::Tensor();
  const EngineScope scope;
  at::Tensor values = held.detach().clone();
  AddLazyKey(values);
  leaf_.set_data(values);
  if (has_grad_dtype_) leaf_.set_grad_dtype(grad_dtype_);
  BumpEpoch();
  shard_.reset();
  return std::exchange(leaf_, at::Tensor());
}

at::Tensor FsdpParam::shard() const {
  auto locked = shard_->lock();
  TORCH_CHECK(locked.defined(), "fsdp: the parameter '", name_,
              "' was removed from its module");
  return at::Tensor(std::move(locked));
}

bool FsdpParam::requires_grad() const { return shard().requires_grad(); }

FsdpParam* FsdpParam::FindByShard(const at::Tensor& shard) {
  Shards& shards = Shards::Get();
  const std::lock_guard<std::mutex> lock(shards.mutex);
  const auto found = shards.by_impl.find(shard.unsafeGetTensorImpl());
  return found == shards.by_impl.end() ? nullptr : found->second;
}

void FsdpParam::BindShard(const at::Tensor& padded_flat) {
  padded_shard_ = padded_flat;
  orig_dtype_ = padded_flat.scalar_type();
  if (!shard_.has_value()) return;
  const at::Tensor local = geometry_.WithoutPadding(padded_flat);
  at::Tensor held = shard();
  if (held.device() != local.device()) {
    held.unsafeGetTensorImpl()->_change_backend_component_keys(local.device());
  }
  // Precedes set_data, which on the meta device requires equal keys.
  AddLazyKey(local);
  AddLazyKey(held);
  held.set_data(local);
}

void FsdpParam::RememberShard() { remembered_ = CurrentShard(); }

void FsdpParam::AgreeOnRequiresGrad() {
  const at::Tensor held = shard();
  if (held.requires_grad() == requires_grad_ &&
      leaf_.requires_grad() == requires_grad_) {
    return;
  }
  TORCH_CHECK(requires_grad_ || !is_stored(), "fsdp: the parameter '", name_,
              "' was unfrozen, but it is kept in another form "
              "(AllGatherExtension::store), which cannot be trained; train an "
              "adapter next to it");
  requires_grad_ = !requires_grad_;
  held.set_requires_grad(requires_grad_);
  leaf_.set_requires_grad(requires_grad_);
}

void FsdpParam::PlaceGradientNotice() {
  if (leaf_.grad().defined()) return;
  if (!gradient_notice_.defined()) {
    gradient_notice_ = at::empty({0}, leaf_.options().requires_grad(false));
    c10::TensorImpl* impl = gradient_notice_.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(
        c10::Storage(c10::make_intrusive<ManagedStorage>(
            this, leaf_.device(), unsharded_bytes(),
            ManagedStorage::Holds::kGradient)));
    impl->set_sizes_contiguous(geometry_.sizes);
    AddLazyKey(gradient_notice_);
  }
  leaf_.mutable_grad() = gradient_notice_;
}

void FsdpParam::RemoveGradientNotice() {
  if (gradient_notice_.defined() && leaf_.grad().is_same(gradient_notice_)) {
    leaf_.mutable_grad() = at::Tensor();
  }
}

void FsdpParam::DropGradientNotice() {
  if (!gradient_notice_.defined()) return;
  RemoveGradientNotice();
  FindManagedStorage(gradient_notice_)->Orphan();
  gradient_notice_ = at::Tensor();
}

void FsdpParam::OnGradientNoticeRead(const std::string& op) {
  if (op == "aten::detach_") return;  // zero_grad
  TORCH_CHECK(
      UsePhase::Now().backward && (op == "aten::add_" || op == "aten::add"),
      "fsdp: ", op, " reads the gradient of the parameter '", name_,
      "' through the layer's member; gradients are on the shards. Read this "
      "rank's part with module->named_parameters()[...].grad(), or, on every "
      "rank, the whole with "
      "fsdp::dtensor_of(parameter)->grad()->full_tensor(). "
      "Build optimizers from module->parameters(), after fully_shard");
  const EngineScope scope;
  gradient_notice_.set_data(
      at::zeros(geometry_.sizes, leaf_.options().requires_grad(false)));
  gradient_notice_ = at::Tensor();
}

// The whole group shares the storage, so it may hold another parameter's shard
// too.
bool FsdpParam::ShardWasReplaced() const {
  const at::Tensor held = shard();
  return !held.has_storage() ||
         !held.storage().is_alias_of(padded_shard_.storage()) ||
         held.storage_offset() != padded_shard_.storage_offset() ||
         held.scalar_type() != orig_dtype_ ||
         held.sizes() != geometry_.local_sizes() ||
         (held.numel() > 1 &&
          held.strides() != c10::contiguous_strides(geometry_.padded_sizes()));
}

void FsdpParam::ResetLeaf(c10::Device device, c10::ScalarType dtype) {
  if (storage_) storage_->Orphan();
  DropGradientNotice();
  storage_ = c10::make_intrusive<ManagedStorage>(
      this, device,
      static_cast<size_t>(unsharded_numel()) * c10::elementSize(dtype));
  at::Tensor data = at::empty({0}, at::TensorOptions(dtype).device(device));
  data.unsafeGetTensorImpl()->set_storage_keep_dtype(
      c10::Storage(c10::intrusive_ptr<c10::StorageImpl>(storage_)));
  data.unsafeGetTensorImpl()->set_sizes_contiguous(leaf_.sizes());
  if (leaf_.device() != device) {
    leaf_.unsafeGetTensorImpl()->_change_backend_component_keys(device);
  }
  // Precedes set_data, which on the meta device requires equal keys.
  AddLazyKey(leaf_);
  AddLazyKey(data);
  leaf_.set_data(data);
  BumpEpoch();
}

size_t FsdpParam::unsharded_bytes() const {
  return static_cast<size_t>(unsharded_numel()) * leaf_.element_size();
}

at::Tensor FsdpParam::FlatUnsharded() const {
  at::Tensor flat = at::empty({0}, leaf_.options().requires_grad(false));
  flat.unsafeGetTensorImpl()->set_storage_keep_dtype(
      c10::Storage(c10::intrusive_ptr<c10::StorageImpl>(storage_)));
  flat.unsafeGetTensorImpl()->set_sizes_contiguous({unsharded_numel()});
  return flat;
}

at::Tensor FsdpParam::TakeGradient() {
  RemoveGradientNotice();
  return std::exchange(leaf_.mutable_grad(), at::Tensor());
}

// Autograd adds the next gradient to this one, in this one's dtype.
void FsdpParam::KeepGradient() {
  RemoveGradientNotice();
  at::Tensor& gradient = leaf_.mutable_grad();
  const std::optional<c10::ScalarType> dtype = unreduced_dtype();
  if (gradient.defined() && dtype.has_value()) gradient = gradient.to(*dtype);
}

bool FsdpParam::HasGradient() const {
  return leaf_.grad().defined() && !leaf_.grad().is_same(gradient_notice_);
}

}  // namespace fsdp
