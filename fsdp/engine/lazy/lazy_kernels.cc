// SPDX-License-Identifier: Apache-2.0
// The lazy key's kernels for the operators that layers call most. They do the
// same as LazyFallback (lazy_fallback.h), without boxes while there is nothing
// to do. The dispatcher calls these kernels on any thread, in place of the
// fallback.
//
// [Note: operators without boxes]
// Most operators that reach the key find every parameter gathered, and then
// only dispatch again below the key. Boxing arguments and results for that
// costs several times as much as the check. A kernel looks at its arguments as
// they are, and leaves everything else to the fallback: parameters that are not
// current, casts, shards, activations and parameters that follow rules,
// gradients, the meta device. Operators that write, or take lists of tensors,
// have no kernel here.
//
// Tested by tests/fsdp/lazy_kernels_test.cc.
#include <optional>
#include <type_traits>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/core/boxing/KernelFunction.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/ops/add_ops.h"
#include "ATen/ops/addmm_ops.h"
#include "ATen/ops/bmm_ops.h"
#include "ATen/ops/conv1d_ops.h"
#include "ATen/ops/conv2d_ops.h"
#include "ATen/ops/conv3d_ops.h"
#include "ATen/ops/embedding_ops.h"
#include "ATen/ops/group_norm_ops.h"
#include "ATen/ops/layer_norm_ops.h"
#include "ATen/ops/linear_ops.h"
#include "ATen/ops/matmul_ops.h"
#include "ATen/ops/mm_ops.h"
#include "ATen/ops/mul_ops.h"
#include "ATen/ops/rms_norm_ops.h"
#include "ATen/ops/t_ops.h"
#include "ATen/ops/transpose_ops.h"
#include "c10/core/DispatchKeySet.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/lazy/lazy_fallback.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/managed_storage.h"
#include "fsdp/engine/parallel_param.h"
#include "torch/library.h"

namespace fsdp {
namespace {

// Whether an operator in `phase` can take the argument as it is.
bool IsReady(const at::Tensor& tensor, UsePhase phase) {
  if (!tensor.defined() || !HasLazyKey(tensor)) return true;
  const ManagedStorage* storage = FindManagedStorage(tensor);
  if (storage == nullptr ||
      storage->holds() != ManagedStorage::Holds::kParameter) {
    return false;
  }
  const FsdpParam* param = storage->owner();
  if (param == nullptr || !param->IsCurrent(phase)) return false;
  const bool casts = param->input_dtype().has_value() && phase.runs_forward();
  const bool follows_rules =
      param->parallel() != nullptr && param->parallel()->has_rules;
  return !casts && !follows_rules;
}

bool IsReady(const std::optional<at::Tensor>& tensor, UsePhase phase) {
  return !tensor.has_value() || IsReady(*tensor, phase);
}

template <class Argument>
bool IsReady(const Argument& argument, UsePhase phase) {
  static_assert(!std::is_convertible_v<Argument, at::TensorList>);
  static_cast<void>(argument);
  static_cast<void>(phase);
  return true;
}

template <class Operator, class Schema>
struct LazyKernel;

template <class Operator, class Return, class... Args>
struct LazyKernel<Operator, Return(Args...)> {
  static_assert((!std::is_same_v<Args, at::Tensor&> && ...),
                "the fallback refuses writes");

  static Return Run(c10::DispatchKeySet keys, Args... args) {
    const UsePhase phase = UsePhase::Now();
    if (!MetaDeviceGuard::active() && (IsReady(args, phase) && ...)) {
      constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER,
                                           kLazyKey);
      const c10::impl::ExcludeDispatchKeyGuard below(kLazyKey);
      return Operator::redispatch(keys & kBelow, std::forward<Args>(args)...);
    }
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow(Operator::name,
                                                       Operator::overload_name);
    static const auto fallback =
        c10::KernelFunction::makeFromBoxedFunction<&LazyFallback>();
    return fallback.call<Return, Args...>(op, keys,
                                          std::forward<Args>(args)...);
  }
};

template <class Operator>
void Register(torch::Library& library, const char* name) {
  library.impl(
      name, TORCH_FN((&LazyKernel<Operator, typename Operator::schema>::Run)));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, DeferredInit, m) {
  Register<at::_ops::add_Tensor>(m, "add.Tensor");
  Register<at::_ops::addmm>(m, "addmm");
  Register<at::_ops::bmm>(m, "bmm");
  Register<at::_ops::conv1d>(m, "conv1d");
  Register<at::_ops::conv2d>(m, "conv2d");
  Register<at::_ops::conv3d>(m, "conv3d");
  Register<at::_ops::embedding>(m, "embedding");
  Register<at::_ops::group_norm>(m, "group_norm");
  Register<at::_ops::layer_norm>(m, "layer_norm");
  Register<at::_ops::linear>(m, "linear");
  Register<at::_ops::matmul>(m, "matmul");
  Register<at::_ops::mm>(m, "mm");
  Register<at::_ops::mul_Tensor>(m, "mul.Tensor");
  Register<at::_ops::rms_norm>(m, "rms_norm");
  Register<at::_ops::t>(m, "t");
  Register<at::_ops::transpose_int>(m, "transpose.int");
}

}  // namespace fsdp
