// The lazy dispatch key: how unmodified modules gather parameters at the moment
// an operator needs them. Everything in fsdp/ is based on it.
//
// [Note: the lazy key]
// A layer's member (`weight`) is a tensor whose storage fully_shard empties.
// Its key set gets a dispatch key that is above Autograd and Autocast and that
// nothing else uses (DeferredInit). The dispatcher therefore passes every
// operator that takes such a tensor, or a view of it, or one that autograd
// saved, to the one boxed fallback registered here, before anything else sees
// it. The fallback
//   1. finds the parameter: the tensor's storage is a ManagedStorage, which
//      points at it. This takes one comparison and one load, without a map or a
//      lock;
//   2. reports the use to the engine (StateContext::OnUse), unless the
//      parameter's stamp shows that nothing has changed since the last report;
//   3. refuses operators whose effect would be lost or wrong (writes into a
//      gathered parameter);
//   4. casts activations if the group computes in low precision;
//   5. dispatches again below the key.
//
// Results do not carry the key, except for views, so activations and gradients
// cost nothing. Operators that only make a view do not need data, so they do
// not gather anything.
//
// Shards, which the registry holds, carry the key too: a forward may read them
// instead of members, and a write into one makes the gathered parameter out of
// date. shard_use.h decides what an operator on a shard means.
//
// The same key, included by MetaDeviceGuard, sends factory functions here,
// where their `device` argument becomes `meta`.
#ifndef FSDP_ENGINE_LAZY_KEY_H_
#define FSDP_ENGINE_LAZY_KEY_H_

#include <atomic>

#include "ATen/core/LegacyTypeDispatch.h"
#include "ATen/core/Tensor.h"
#include "c10/core/DispatchKey.h"
#include "c10/core/GradMode.h"
#include "c10/core/StorageImpl.h"
#include "c10/core/impl/LocalDispatchKeySet.h"

namespace c10 {
struct FunctionSchema;
}  // namespace c10

namespace fsdp {

class FsdpParam;
class FsdpParamGroup;

inline constexpr c10::DispatchKey kLazyKey = c10::DispatchKey::DeferredInit;

// The storage of a gathered parameter: empty while it is sharded. It is always
// the same object, so whatever autograd saved is whole again when the parameter
// is gathered again. Any thread may read; the engine writes.
class ManagedStorage final : public c10::StorageImpl {
 public:
  // kGradient: the storage of the member's grad() while the gradient is on the
  // shard. It never has memory, and reading it is an error.
  enum class Holds { kParameter, kGradient };

  // The storage has no memory yet; it will have `num_bytes` on `device`. It
  // reports that size all the time, so that views can be made while it is
  // empty; raw pointers into it are refused until there is memory.
  ManagedStorage(FsdpParam* owner, c10::Device device, size_t num_bytes,
                 Holds holds = Holds::kParameter);

  Holds holds() const { return holds_; }

  // Null once the module is gone.
  FsdpParam* owner() const { return owner_.load(std::memory_order_acquire); }
  void Orphan() { owner_.store(nullptr, std::memory_order_release); }

  // Allocates new memory, without a change of autograd's version counters.
  void Allocate();
  // Uses memory of the same size that `keep_alive` owns, without a copy.
  void Borrow(const at::Tensor& keep_alive);
  void Free();

 private:
  // While there is no memory: whether raw pointers throw an error that says
  // what to do.
  void RefusePointers(bool refuse);

  std::atomic<FsdpParam*> owner_;
  const Holds holds_;
};

// Null when the storage of `tensor` is not managed.
ManagedStorage* ManagedStorageOf(const at::Tensor& tensor);

// The storage of a group's shards, by which views of a shard are also
// recognized.
class ShardStorage final : public c10::StorageImpl {
 public:
  // Takes over `memory`, of `num_bytes`. `in_container`: a ParameterList or
  // ParameterDict holds one of the shards, so forward reads it there.
  ShardStorage(FsdpParamGroup* group, at::DataPtr memory, size_t num_bytes,
               bool in_container);

  // Null once the module is gone or its shards have moved elsewhere.
  FsdpParamGroup* group() const {
    return group_.load(std::memory_order_acquire);
  }
  void Orphan() { group_.store(nullptr, std::memory_order_release); }
  bool in_container() const { return in_container_; }

 private:
  std::atomic<FsdpParamGroup*> group_;
  const bool in_container_;
};

// Null when `tensor` is not in a ShardStorage.
ShardStorage* ShardStorageOf(const at::Tensor& tensor);

// Makes every operator on `tensor` pass the fallback.
void AddLazyKey(const at::Tensor& tensor);
bool HasLazyKey(const at::Tensor& tensor);

// For the engine's own work: operators skip the key, record no gradient and
// leave version counters alone.
class EngineScope {
 public:
  EngineScope();

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
  c10::AutoGradMode no_grad_{false};
  at::AutoDispatchBelowADInplaceOrView below_version_counters_;
};

// While it lives, this thread builds modules on the meta device, whatever
// their constructors ask for.
class MetaDeviceGuard {
 public:
  MetaDeviceGuard();
  ~MetaDeviceGuard();
  MetaDeviceGuard(const MetaDeviceGuard&) = delete;
  MetaDeviceGuard& operator=(const MetaDeviceGuard&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard include_;
};

// Says that this thread is inside a forward. Only models whose first operator
// on a group takes nothing except parameters need it: see strict mode in
// fsdp/README.md.
class ForwardScope {
 public:
  ForwardScope();
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

  static bool active();
};

// Says that this thread works on this rank's shards: whatever
// module->parameters() gives is this rank's part for every operator, and
// nothing is gathered for it. For custom optimizers and inspection, whose
// operators would otherwise be taken for a forward, or refused.
class ShardScope {
 public:
  ShardScope();
  ~ShardScope();
  ShardScope(const ShardScope&) = delete;
  ShardScope& operator=(const ShardScope&) = delete;

  static bool active();
};

// Whether the operator makes a view of its argument and reads no element.
bool OnlyMakesView(const c10::FunctionSchema& schema);

}  // namespace fsdp

#endif  // FSDP_ENGINE_LAZY_KEY_H_
