// SPDX-License-Identifier: Apache-2.0
// Finds parameters and shards among an operator's arguments, gathers and runs
// it.
// Tested by tests/fsdp/reaching_parameters_test.cc.
#include "fsdp/engine/lazy/lazy_fallback.h"

#include <atomic>
#include <cstddef>
#include <utility>

#include "c10/util/SmallVector.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/lazy/operator_schema.h"
#include "fsdp/engine/lazy/shard_use.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/managed_storage.h"
#include "fsdp/engine/step_scheduler.h"
#include "torch/library.h"

namespace fsdp {
namespace {

using Stack = torch::jit::Stack;

// Release and acquire: a thread that sees the hook sees everything that was
// written before SetOperatorHook.
std::atomic<OperatorHook> operator_hook{nullptr};

bool DoneByHook(const c10::OperatorHandle& op, Stack* stack) {
  const OperatorHook hook = operator_hook.load(std::memory_order_acquire);
  return hook != nullptr && hook(op, stack);
}

// The parameters and shards that one operator call takes.
struct Touched {
  c10::SmallVector<FsdpParam*, 4> params;
  bool has_other_tensor = false;
  bool has_tagged_tensor = false;  // a shard, or a tensor made from one

  void AddTensor(const at::Tensor& tensor, const c10::FunctionSchema& schema) {
    if (!tensor.defined()) return;
    if (!HasLazyKey(tensor)) {
      has_other_tensor = true;
      return;
    }
    const ManagedStorage* storage = FindManagedStorage(tensor);
    if (storage == nullptr) {
      has_other_tensor = true;
      has_tagged_tensor = true;
      return;
    }
    FsdpParam* param = storage->owner();
    TORCH_CHECK(param != nullptr,
                "fsdp: a parameter is used after its module was destroyed");
    if (storage->holds() == ManagedStorage::Holds::kGradient) {
      param->OnGradientNoticeRead(schema.name());
      return;
    }
    params.push_back(param);
  }
};

// Whether PyTorch also loses the write in `schema`: an Embedding with max_norm
// renormalises the rows that it reads, in each forward.
bool MayWrite(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::set_" ||
         schema.name() == "aten::embedding_renorm_";
}

// Refuses writes: they would be lost when the parameter is freed.
void CheckNotWritten(const c10::Argument& argument, const FsdpParam& param,
                     const c10::FunctionSchema& schema) {
  const c10::AliasInfo* alias = argument.alias_info();
  TORCH_CHECK(alias == nullptr || !alias->isWrite() || MayWrite(schema),
              "fsdp: ", schema.name(), " writes into the gathered parameter '",
              param.name(),
              "', whose contents are dropped when it is freed. Write into the "
              "shard, which module->named_parameters() gives, or see "
              "fsdp::init and fsdp::distribute_tensor; build optimizers from "
              "module->parameters(), after fully_shard");
}

Touched Collect(const c10::FunctionSchema& schema, const Stack& stack,
                size_t begin) {
  Touched touched;
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[begin + i];
    if (value.isTensor()) {
      const size_t before = touched.params.size();
      touched.AddTensor(value.toTensor(), schema);
      if (touched.params.size() > before) {
        CheckNotWritten(arguments[i], *touched.params.back(), schema);
      }
    } else if (value.isTensorList()) {
      const size_t before = touched.params.size();
      for (const at::Tensor& tensor : value.toTensorVector()) {
        touched.AddTensor(tensor, schema);
      }
      if (touched.params.size() > before) {
        CheckNotWritten(arguments[i], *touched.params[before], schema);
      }
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) touched.AddTensor(element.toTensor(), schema);
      }
    }
  }
  return touched;
}

// Whether the tensor is ordinary: not a parameter, a shard or an activation in
// parts.
bool IsOrdinary(const at::Tensor& tensor) {
  return !HasLazyKey(tensor) ||
         (tensor.has_storage() && FindManagedStorage(tensor) == nullptr &&
          FindShardStorage(tensor) == nullptr &&
          FsdpParam::FindByShard(tensor) == nullptr);
}

// Whether `tensor` is an activation with another dtype than `param` requires.
bool IsCast(const at::Tensor& tensor, const FsdpParam& param) {
  return tensor.defined() && tensor.is_floating_point() &&
         tensor.scalar_type() != *param.input_dtype() && IsOrdinary(tensor) &&
         !param.group().IsBuffer(tensor);
}

void CastActivations(const FsdpParam& param, const c10::FunctionSchema& schema,
                     Stack& stack, size_t begin) {
  const c10::ScalarType dtype = *param.input_dtype();
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) continue;
    c10::IValue& value = stack[begin + i];
    if (value.isTensor()) {
      if (IsCast(value.toTensor(), param)) value = value.toTensor().to(dtype);
    } else if (value.isTensorList()) {
      // States of an LSTM.
      c10::List<at::Tensor> list = value.toTensorList().copy();
      for (size_t j = 0; j < list.size(); ++j) {
        const at::Tensor tensor = list.get(j);
        if (IsCast(tensor, param)) list.set(j, tensor.to(dtype));
      }
      value = std::move(list);
    }
  }
}

void MoveFactoryToMeta(const c10::FunctionSchema& schema, Stack& stack,
                       size_t begin) {
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "device") {
      stack[begin + i] = c10::IValue(c10::Device(c10::kMeta));
    }
  }
}

// Has the operator's parameters gathered.
void Gather(const Touched& touched, const c10::FunctionSchema& schema,
            UsePhase phase) {
  for (FsdpParam* param : touched.params) {
    if (param->IsCurrent(phase)) continue;
    StepScheduler& scheduler = param->group().scheduler();
    if (OnlyMakesView(schema)) {
      scheduler.OnView(*param);
      continue;
    }
    scheduler.OnUse(*param, phase,
                    {.op = schema.name(),
                     .may_start = touched.has_other_tensor,
                     .together = touched.params});
  }
}

}  // namespace

void LazyFallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t begin = stack->size() - schema.arguments().size();
  if (MetaDeviceGuard::active()) MoveFactoryToMeta(schema, *stack, begin);
  if (DoneByHook(op, stack)) return;
  Touched touched = Collect(schema, *stack, begin);
  const bool had_shards = touched.has_tagged_tensor;
  if (had_shards && ResolveShards(schema, *stack, begin)) {
    if (DoneByHook(op, stack)) return;
    touched = Collect(schema, *stack, begin);
  }
  if (!touched.params.empty()) {
    const UsePhase phase = UsePhase::Now();
    Gather(touched, schema, phase);
    const FsdpParam& first = *touched.params.front();
    if (first.input_dtype().has_value() && phase.runs_forward()) {
      CastActivations(first, schema, *stack, begin);
    }
  }
  {
    const c10::impl::ExcludeDispatchKeyGuard below(kLazyKey);
    op.redispatchBoxed(
        keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kLazyKey),
        stack);
  }
  if (had_shards && MovesShards(schema) && stack->back().isTensor()) {
    // Module::to puts the result in the shard's place.
    AddLazyKey(stack->back().toTensor());
  }
}

void SetOperatorHook(OperatorHook hook) {
  operator_hook.store(hook, std::memory_order_release);
}

TORCH_LIBRARY_IMPL(_, DeferredInit, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&LazyFallback>());
}

}  // namespace fsdp
