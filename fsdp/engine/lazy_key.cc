#include "fsdp/engine/lazy_key.h"

#include <mutex>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/ops/empty.h"
#include "c10/core/Allocator.h"
#include "c10/core/GradMode.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/shard_use.h"
#include "fsdp/engine/state_context.h"
#include "torch/csrc/autograd/graph_task.h"
#include "torch/library.h"

namespace fsdp {
namespace {

thread_local int meta_depth = 0;
thread_local int forward_depth = 0;
thread_local int shard_depth = 0;

// TensorImpl's key set is protected.
struct KeySetAccess : c10::TensorImpl {
  static c10::DispatchKeySet& Of(const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->*(&KeySetAccess::key_set_);
  }
};

// Whether StorageImpl throws the error of its extra meta for a pointer. It can
// be switched on by a member function, but not off. Access is not checked for
// the arguments of an explicit instantiation ([temp.spec]).
template <bool c10::StorageImpl::*kFlag>
struct PointerFlag {
  friend bool& RefusePointersOf(c10::StorageImpl& storage) {
    return storage.*kFlag;
  }
};
bool& RefusePointersOf(c10::StorageImpl& storage);
template struct PointerFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

using Stack = torch::jit::Stack;

// What one operator call touches.
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
    const ManagedStorage* storage = ManagedStorageOf(tensor);
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

// Whether PyTorch also loses what `schema` writes: an Embedding with max_norm
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

// Whether `tensor` is an activation with another dtype than `param` requires.
bool IsCast(const at::Tensor& tensor, const FsdpParam& param) {
  return tensor.defined() && tensor.is_floating_point() &&
         tensor.scalar_type() != *param.input_dtype() && !HasLazyKey(tensor) &&
         !param.IsBuffer(tensor);
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

// A view made before the gather must already have the dtype that to() gave the
// shards, and record a gradient if they require one: `weight.t()` comes before
// the operator that gathers `weight`.
void PrepareForView(FsdpParam& param) {
  const std::lock_guard<std::recursive_mutex> lock(param.context().mutex());
  FsdpParamGroup& group = param.group();
  param.AgreeOnRequiresGrad();
  if (group.sharding() != FsdpParamGroup::Sharding::kSharded ||
      group.gather_pending()) {
    return;
  }
  const EngineScope scope;
  group.RefreshShards();
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

// Has every parameter of the operator gathered.
void Gather(const Touched& touched, const c10::FunctionSchema& schema,
            UsePhase phase) {
  for (FsdpParam* param : touched.params) {
    if (param->IsCurrent(phase)) continue;
    if (OnlyMakesView(schema)) {
      PrepareForView(*param);
      continue;
    }
    param->context().OnUse(*param, phase,
                           {.op = schema.name(),
                            .may_start = touched.has_other_tensor,
                            .together = touched.params});
  }
}

void Fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t begin = stack->size() - schema.arguments().size();
  if (meta_depth > 0) MoveFactoryToMeta(schema, *stack, begin);
  Touched touched = Collect(schema, *stack, begin);
  const bool had_shards = touched.has_tagged_tensor;
  if (had_shards && ResolveShards(schema, *stack, begin)) {
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

TORCH_LIBRARY_IMPL(_, DeferredInit, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

}  // namespace

ManagedStorage::ManagedStorage(FsdpParam* owner, c10::Device device,
                               size_t num_bytes, Holds holds)
    : c10::StorageImpl(use_byte_size_t(), static_cast<int64_t>(num_bytes),
                       at::DataPtr(nullptr, device),
                       c10::GetAllocator(device.type()), /*resizable=*/true),
      owner_(owner),
      holds_(holds) {
  get_extra_meta().custom_data_ptr_error_msg_ =
      holds == Holds::kParameter
          ? "fsdp: a raw pointer into a parameter of fully_shard, which is "
            "sharded at the moment and has no memory. Gather it first: use it "
            "in a forward, or call fsdp::get_fsdp_module(module).unshard(); "
            "this rank's shard is in module->named_parameters()"
          : "fsdp: a raw pointer into the gradient of a layer's member, which "
            "has no memory: gradients are on the shards, in "
            "module->named_parameters()";
  Free();
}

void ManagedStorage::Allocate() {
  RefusePointers(false);
  set_data_ptr_noswap(allocator()->allocate(nbytes()));
}

void ManagedStorage::Borrow(const at::Tensor& keep_alive) {
  RefusePointers(false);
  auto* context = new at::Tensor(keep_alive);
  set_data_ptr_noswap(at::DataPtr(
      context->data_ptr(), context,
      [](void* owned) { delete static_cast<at::Tensor*>(owned); },
      keep_alive.device()));
}

void ManagedStorage::Free() {
  RefusePointers(true);
  set_data_ptr_noswap(at::DataPtr(nullptr, device()));
}

ManagedStorage* ManagedStorageOf(const at::Tensor& tensor) {
  if (!HasLazyKey(tensor) || !tensor.has_storage()) return nullptr;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  return typeid(*storage) == typeid(ManagedStorage)
             ? static_cast<ManagedStorage*>(storage)
             : nullptr;
}

// The call of set_data_ptr_noswap that follows puts the flag into effect.
void ManagedStorage::RefusePointers(bool refuse) {
  RefusePointersOf(*this) = refuse;
}

ShardStorage::ShardStorage(FsdpParamGroup* group, at::DataPtr memory,
                           size_t num_bytes, bool in_container)
    : c10::StorageImpl(use_byte_size_t(), static_cast<int64_t>(num_bytes),
                       std::move(memory), /*allocator=*/nullptr,
                       /*resizable=*/false),
      group_(group),
      in_container_(in_container) {}

ShardStorage* ShardStorageOf(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  return typeid(*storage) == typeid(ShardStorage)
             ? static_cast<ShardStorage*>(storage)
             : nullptr;
}

bool OnlyMakesView(const c10::FunctionSchema& schema) {
  static const std::unordered_set<std::string> kViews = {
      "aten::t",          "aten::transpose", "aten::permute",
      "aten::view",       "aten::expand",    "aten::slice",
      "aten::select",     "aten::squeeze",   "aten::unsqueeze",
      "aten::as_strided", "aten::detach",    "aten::alias",
      "aten::narrow",     "aten::unbind",    "aten::split",
      "aten::chunk",      "aten::diagonal",  "aten::view_as",
      "aten::expand_as",  "aten::numpy_T",   "aten::mT",
      "aten::movedim",    "aten::swapaxes",  "aten::split_with_sizes"};
  return kViews.count(schema.name()) != 0;
}

void AddLazyKey(const at::Tensor& tensor) {
  c10::DispatchKeySet& keys = KeySetAccess::Of(tensor);
  keys = keys.add(kLazyKey);
}

bool HasLazyKey(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->key_set().has(kLazyKey);
}

EngineScope::EngineScope() : exclude_(kLazyKey) {}

MetaDeviceGuard::MetaDeviceGuard() : include_(kLazyKey) { ++meta_depth; }
MetaDeviceGuard::~MetaDeviceGuard() { --meta_depth; }

ForwardScope::ForwardScope() { ++forward_depth; }
ForwardScope::~ForwardScope() { --forward_depth; }
bool ForwardScope::active() { return forward_depth > 0; }

ShardScope::ShardScope() { ++shard_depth; }
ShardScope::~ShardScope() { --shard_depth; }
bool ShardScope::active() { return shard_depth > 0; }

}  // namespace fsdp
