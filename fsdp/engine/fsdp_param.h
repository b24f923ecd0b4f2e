// SPDX-License-Identifier: Apache-2.0
// FsdpParam: one parameter under fully_shard: the shard, which the module's
// registry and the optimizer hold; the unsharded leaf, which is the layer's
// member; and the cut from one to the other. It does not communicate: an
// FsdpParamGroup gathers and reduces, and the parameter never calls the group.
// Driven by the thread that runs forward or backward; only the stamp is read
// without a lock.
#ifndef FSDP_ENGINE_FSDP_PARAM_H_
#define FSDP_ENGINE_FSDP_PARAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/all_gather_extension.h"
#include "fsdp/engine/comm/shard_geometry.h"
#include "fsdp/engine/managed_storage.h"
#include "fsdp/engine/policies.h"
#include "fsdp/mesh/dtensor.h"

namespace torch::nn {
class Module;
}

namespace fsdp {

class FsdpParamGroup;
struct ParallelParam;

// Where an operator runs; a stamp is valid for one phase.
struct UsePhase {
  bool backward = false;      // inside a backward pass
  bool grad_enabled = false;  // in backward: recomputing a checkpoint

  static UsePhase Now();
  bool runs_forward() const { return !backward || grad_enabled; }
  uint64_t bits() const {
    return (backward ? 2u : 0u) | (grad_enabled ? 1u : 0u);
  }
};

class FsdpParam {
 public:
  // A registry entry that holds this parameter: tied weights have several.
  struct Slot {
    torch::nn::Module* module;
    std::string name;
  };

  // A sharded parameter's ties to the engine.
  struct Ties {
    std::shared_ptr<void> owner;  // lives as long as the shard
    // Autograd calls this when the parameter's gradient is complete.
    void (*on_gradient)(FsdpParam& param);
  };
  // Notes about the current pass, for the group and the scheduler.
  struct Marks {
    bool used = false;     // by a forward that records gradients
    bool fired = false;    // the gradient arrived in this backward
    bool touched = false;  // an operator took it since the gather
    bool loaded = false;  // torch::load put another tensor in the shard's place
  };

  // `group` outlives the parameter, which only passes it to the code that
  // handles an operator; `spec` describes the shard. The constructor does not
  // change `leaf` or the module: see Attach.
  FsdpParam(FsdpParamGroup* group, at::Tensor leaf, std::vector<Slot> slots,
            ShardGeometry geometry, DTensorSpec spec,
            const MixedPrecisionPolicy& policy);
  ~FsdpParam();
  FsdpParam(const FsdpParam&) = delete;
  FsdpParam& operator=(const FsdpParam&) = delete;

  // Call it before Attach: ranks keep `stored`, which `geometry` cuts, instead
  // of the leaf; see AllGatherExtension::store.
  void SetStored(at::Tensor stored);
  bool is_stored() const { return own_dtype_.has_value(); }
  // The tensor that is cut into shards; valid until Attach.
  const at::Tensor& whole() const {
    return stored_.defined() ? stored_ : leaf_;
  }

  // How another parallelism has cut the parameter; null without one.
  const ParallelParam* parallel() const { return parallel_.get(); }
  const std::shared_ptr<const ParallelParam>& shared_parallel() const {
    return parallel_;
  }
  void set_parallel(std::shared_ptr<const ParallelParam> parallel) {
    parallel_ = std::move(parallel);
  }

  // Makes `shard` this rank's leaf: puts it into the registry, empties the
  // unsharded leaf and tags it.
  void Attach(at::Tensor shard, const Ties& ties);

  // Whether only the registry holds the shard, and not an optimizer, say.
  bool IsHeldByModuleAlone() const;
  // Gives the shard's values back to the leaf. The leaf is then an ordinary
  // tensor, which the caller puts under another group.
  at::Tensor Release();

  // The name below the root, "layers.0.weight".
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  const std::vector<Slot>& slots() const { return slots_; }
  const ShardGeometry& geometry() const { return geometry_; }
  FsdpParamGroup& group() const { return *group_; }

  // The layer's member: always the same object, without data while sharded.
  const at::Tensor& leaf() const { return leaf_; }
  // The tensor that the optimizer steps. Throws c10::Error when nothing holds
  // it any more.
  at::Tensor shard() const;
  bool requires_grad() const;
  static FsdpParam* FindByShard(const at::Tensor& shard);
  // The shard as a DTensor, on the group's mesh and the axes of tensor
  // parallelism, if there are any.
  DTensor AsDTensor() const { return DTensor(shard(), spec_); }

  // The dtypes: first the shard's, then the gathered parameter's.
  c10::ScalarType orig_dtype() const { return orig_dtype_; }
  c10::ScalarType gathered_dtype() const { return leaf_.scalar_type(); }
  // The gathered parameter's dtype if shards have `shard_dtype`.
  c10::ScalarType ChooseGatheredDtype(c10::ScalarType shard_dtype) const;
  // The policy's, or the one that the program chose for this parameter.
  std::optional<c10::ScalarType> param_dtype() const { return param_dtype_; }
  // The dtype of the shard's gradient; absent: any.
  std::optional<c10::ScalarType> grad_dtype() const {
    return has_grad_dtype_ ? grad_dtype_ : std::optional(orig_dtype_);
  }
  // The dtype in which gradients accumulate without reduction; absent: any.
  std::optional<c10::ScalarType> unreduced_dtype() const {
    return reduce_dtype_.has_value() ? reduce_dtype_ : grad_dtype();
  }
  // The dtype that activations are cast to; absent: they are left alone.
  std::optional<c10::ScalarType> input_dtype() const { return input_dtype_; }

  // The padded shard, flat, inside the group's buffer; set by the group.
  const at::Tensor& padded_shard() const { return padded_shard_; }
  // Makes `padded_flat`, which holds this rank's part, the shard's storage.
  void BindShard(const at::Tensor& padded_flat);
  // Whether the shard was given another storage (to(), load, set_data).
  bool ShardWasReplaced() const;
  // Whether a ParameterList or ParameterDict holds it.
  bool in_container() const { return in_container_; }
  bool HasRememberedShard() const { return remembered_ == CurrentShard(); }
  // From now on MatchesShard compares with the shard as it is now.
  void RememberShard();
  // From now on WasWrittenSinceGathersBegan compares with the shard as it is
  // now.
  void NoteGathersBegan() { began_ = CurrentShard(); }
  bool WasWrittenSinceGathersBegan() const { return began_ != CurrentShard(); }
  // The member and the registry's shard are one parameter: if either was frozen
  // or unfrozen since they last agreed, both become so.
  void AgreeOnRequiresGrad();

  // Makes reading the member's grad() an error, which says that the gradient is
  // on the shard. Does nothing when the member has a gradient (NoSync).
  void PlaceGradientNotice();
  void RemoveGradientNotice();
  // Called when an operator takes the notice: throws, unless autograd
  // accumulates into it; then it becomes a gradient of zeros.
  void OnGradientNoticeRead(const std::string& op);
  void DropGradientNotice();

  // The gathered parameter's element count, with padding.
  int64_t unsharded_numel() const {
    return is_stored() ? leaf_.numel() : geometry_.gathered_numel();
  }
  // The gathered parameter's sizes as an all-gather extension fills it.
  std::vector<int64_t> unsharded_sizes() const;
  // Makes the leaf a tensor on `device` with `dtype`, without data.
  void ResetLeaf(c10::Device device, c10::ScalarType dtype);
  ManagedStorage& storage() const { return *storage_; }
  size_t unsharded_bytes() const;
  // All gathered elements, flat: a new alias, so that filling it does not count
  // as a change.
  at::Tensor FlatUnsharded() const;

  std::optional<AllGatherExtension>& extension() { return extension_; }

  // The unsharded gradient: this backward's, and those that were kept.
  at::Tensor TakeGradient();
  // Keeps it until a later backward's is reduced.
  void KeepGradient();
  bool HasGradient() const;

  // Hot path: whether nothing changed since the engine last saw this parameter
  // in this phase.
  bool IsCurrent(UsePhase phase) const {
    return stamp_.load(std::memory_order_acquire) == Stamp(phase) &&
           (phase.backward || MatchesShard());
  }
  // Whether the shard was not written, replaced or frozen since it was
  // gathered.
  bool MatchesShard() const {
    return HasRememberedShard() &&
           shard_impl_->requires_grad() == requires_grad_ &&
           leaf_.requires_grad() == requires_grad_;
  }
  void MarkCurrent(UsePhase phase) {
    stamp_.store(Stamp(phase), std::memory_order_release);
  }
  // Makes every stamp stale.
  static void BumpEpoch() { epoch_.fetch_add(1, std::memory_order_acq_rel); }

  Marks& marks() { return marks_; }

 private:
  // Identifies the shard's values, as far as autograd counts changes.
  struct ShardVersion {
    const c10::StorageImpl* storage = nullptr;
    uint32_t version = 0;
    bool operator==(const ShardVersion&) const = default;
  };
  ShardVersion CurrentShard() const {
    return {shard_impl_->unsafe_storage().unsafeGetStorageImpl(),
            shard_impl_->version_counter().current_version()};
  }

  static uint64_t Stamp(UsePhase phase) {
    return (epoch_.load(std::memory_order_acquire) << 2) | phase.bits();
  }

  // Release and acquire: a thread that sees a new epoch sees the change that
  // made every stamp stale.
  static std::atomic<uint64_t> epoch_;

  FsdpParamGroup* const group_;
  at::Tensor leaf_;
  std::vector<Slot> slots_;
  ShardGeometry geometry_;
  DTensorSpec spec_;
  std::string name_;
  c10::ScalarType orig_dtype_;
  std::optional<c10::ScalarType> param_dtype_, reduce_dtype_;
  std::optional<c10::ScalarType> input_dtype_;
  // The leaf's grad_dtype, if the program has set one.
  bool has_grad_dtype_ = false;
  std::optional<c10::ScalarType> grad_dtype_;
  // The registry and the optimizer own the shard.
  std::optional<
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>>
      shard_;
  const c10::TensorImpl* shard_impl_ = nullptr;  // shard_'s
  ShardVersion remembered_;                      // when it was gathered
  ShardVersion began_;  // when the gather streams last waited for it
  bool in_container_ = false;
  bool requires_grad_ = true;  // as last agreed
  // If the parameter is stored in another form: the dtype that it had, and,
  // until Attach, the whole stored tensor.
  std::optional<c10::ScalarType> own_dtype_;
  at::Tensor stored_;
  at::Tensor padded_shard_;
  at::Tensor gradient_notice_;  // made once
  c10::intrusive_ptr<ManagedStorage> storage_;
  std::optional<AllGatherExtension> extension_;
  std::shared_ptr<const ParallelParam> parallel_;
  Marks marks_;
  // Release and acquire: autograd's threads that see the stamp see the members
  // and the gathered parameter as MarkCurrent's thread left them.
  std::atomic<uint64_t> stamp_{0};
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_FSDP_PARAM_H_
