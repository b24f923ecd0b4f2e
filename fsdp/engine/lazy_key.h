// SPDX-License-Identifier: Apache-2.0
// The lazy dispatch key: how unmodified modules gather parameters at the moment
// an operator needs them. Everything in fsdp/ is based on it.
//
// [Note: the lazy key]
// fully_shard empties the storage of a layer's member (`weight`), and adds to
// the member's key set a dispatch key that is above Autograd and Autocast and
// that nothing else uses (DeferredInit). The dispatcher therefore passes every
// operator that takes such a tensor, a view of it, or one that autograd saved,
// to one boxed fallback (lazy_fallback.h), before anything else sees it. The
// fallback
//   1. finds the parameter: the tensor's storage is a ManagedStorage, which
//      points at it. This takes one comparison and one load, without a map or a
//      lock;
//   2. reports the use to the engine (StepScheduler::OnUse), unless the
//      parameter's stamp shows that nothing has changed since the last report;
//   3. refuses operators with an effect that would be lost or wrong (writes
//      into a gathered parameter);
//   4. casts activations if the group computes in low precision;
//   5. dispatches again below the key.
//
// The operators that layers call most have their own kernels, which need no
// boxes as long as only step 5 is left to do (lazy_kernels.cc).
//
// Results do not carry the key, except for views, so activations and gradients
// cost nothing. Operators that only make a view do not need data, so they do
// not gather anything.
//
// Shards, which the registry holds, carry the key too: a forward may read them
// instead of members, and a write into a shard makes the gathered parameter out
// of date. shard_use.h decides whether an operator on a shard means the shard
// or the parameter.
//
// The same key, included by MetaDeviceGuard, sends factory functions to the
// fallback, where their `device` argument becomes `meta`.
#ifndef FSDP_ENGINE_LAZY_KEY_H_
#define FSDP_ENGINE_LAZY_KEY_H_

#include "ATen/core/LegacyTypeDispatch.h"
#include "ATen/core/Tensor.h"
#include "c10/core/DispatchKey.h"
#include "c10/core/GradMode.h"
#include "c10/core/impl/LocalDispatchKeySet.h"

namespace fsdp {

inline constexpr c10::DispatchKey kLazyKey = c10::DispatchKey::DeferredInit;

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

// While it lives, this thread builds modules on the meta device, even if their
// constructors ask for another.
class MetaDeviceGuard {
 public:
  MetaDeviceGuard();
  ~MetaDeviceGuard();
  MetaDeviceGuard(const MetaDeviceGuard&) = delete;
  MetaDeviceGuard& operator=(const MetaDeviceGuard&) = delete;

  static bool active();

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

// Says that this thread works on this rank's shards: for every operator,
// tensors from module->parameters() are this rank's part, and nothing is
// gathered for them. For custom optimizers and inspection: without it, their
// operators would be taken for a forward, or refused.
class ShardScope {
 public:
  ShardScope();
  ~ShardScope();
  ShardScope(const ShardScope&) = delete;
  ShardScope& operator=(const ShardScope&) = delete;

  static bool active();
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_LAZY_KEY_H_
