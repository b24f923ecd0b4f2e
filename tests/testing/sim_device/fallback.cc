// SPDX-License-Identifier: Apache-2.0
// Every other operator: learns the results' shapes on the meta device, or by a
// run on zeros, allocates the results, and issues the CPU kernel on the current
// stream.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/empty_strided.h"
#include "c10/core/DeviceGuard.h"
#include "fsdp/mesh/collective_errors.h"
#include "tests/testing/sim_device/alias.h"
#include "tests/testing/sim_device/cost_model.h"
#include "tests/testing/sim_device/deferred_call.h"
#include "tests/testing/sim_device/options.h"
#include "tests/testing/sim_device/simulation.h"
#include "torch/library.h"

namespace sim {
namespace {

using torch::jit::Stack;

// One call's results, in the schema's order.
struct Results {
  Stack values;
  std::vector<at::Tensor> made;  // results that are not arguments
};

at::Tensor EmptyLike(const at::Tensor& shape, c10::Device device) {
  if (!shape.defined()) return shape;
  return at::empty_strided(
      shape.sizes(), shape.strides(),
      at::TensorOptions(shape.scalar_type()).device(device));
}

// A new call's results, with the shapes of the tensors in `shapes`, which are
// on another device.
Results Allocate(const c10::FunctionSchema& schema, const Stack& arguments,
                 const Stack& shapes, c10::Device device) {
  Results results;
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    if (const std::optional<size_t> argument = ArgumentReturned(schema, i)) {
      results.values.push_back(arguments[*argument]);
    } else if (shapes[i].isTensor()) {
      results.made.push_back(EmptyLike(shapes[i].toTensor(), device));
      results.values.emplace_back(results.made.back());
    } else {
      c10::List<at::Tensor> list;
      for (const at::Tensor& shape : shapes[i].toTensorVector()) {
        results.made.push_back(EmptyLike(shape, device));
        list.push_back(results.made.back());
      }
      results.values.emplace_back(list);
    }
  }
  return results;
}

// The new tensors among a call's results.
std::vector<at::Tensor> NewTensors(const c10::FunctionSchema& schema,
                                   const Stack& returned) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < returned.size(); ++i) {
    if (ArgumentReturned(schema, i).has_value()) continue;
    if (returned[i].isTensor()) {
      tensors.push_back(returned[i].toTensor());
    } else if (returned[i].isTensorList()) {
      for (const at::Tensor& tensor : returned[i].toTensorVector()) {
        tensors.push_back(tensor);
      }
    }
  }
  return tensors;
}

bool ReturnsOnlyTensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    const c10::TypeKind kind = result.type()->kind();
    const bool is_list =
        kind == c10::TypeKind::ListType &&
        result.type()->containedType(0)->kind() == c10::TypeKind::TensorType;
    if (kind != c10::TypeKind::TensorType && !is_list) return false;
  }
  return true;
}

// Whether the results' shapes depend on values, as nonzero's rows do. The host
// waits for the values on a GPU too.
bool DependsOnValues(const c10::FunctionSchema& schema,
                     const Stack& arguments) {
  if (!ReturnsOnlyTensors(schema)) return true;
  static const auto* const kNames =
      new std::set<std::string>{"aten::nonzero",
                                "aten::nonzero.out",
                                "aten::_unique2",
                                "aten::unique_dim",
                                "aten::unique_consecutive",
                                "aten::masked_select",
                                "aten::bincount",
                                "aten::histc"};
  if (kNames->count(schema.name()) != 0) return true;
  return schema.name() == "aten::repeat_interleave" &&
         arguments.back().isNone();
}

// The results' shapes as tensors on another device; absent if neither the meta
// device nor a run on zeros shows them.
std::optional<Stack> ResultShapes(const c10::OperatorHandle& op,
                                  const DeferredCall& call) {
  const KernelScope scope;
  Stack shapes = call.meta;
  // Not every operator has a kernel in C++ for the meta device.
  if (fsdp::CatchErrorText([&] { op.callBoxed(&shapes); }).empty())
    return shapes;
  if (fsdp::CatchErrorText([&] { shapes = call.RunOnZeros(op); }).empty()) {
    return shapes;
  }
  return std::nullopt;
}

// Gives empty out= arguments the sizes that the operator will give them.
void ResizeOutputs(const c10::OperatorHandle& op, const Stack& arguments) {
  const c10::FunctionSchema& schema = op.schema();
  bool any = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    any |= schema.arguments()[i].is_out() && arguments[i].isTensor() &&
           arguments[i].toTensor().numel() == 0;
  }
  if (!any) return;
  const std::optional<Stack> shapes =
      ResultShapes(op, DeferredCall(schema, arguments));
  if (!shapes.has_value()) return;
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const std::optional<size_t> out = ArgumentReturned(schema, i);
    if (!out.has_value() || !(*shapes)[i].isTensor()) continue;
    const at::Tensor tensor = arguments[*out].toTensor();
    const at::Tensor& shape = (*shapes)[i].toTensor();
    if (tensor.sizes() != shape.sizes()) tensor.resize_(shape.sizes());
  }
}

void CopyAll(const std::vector<at::Tensor>& from,
             const std::vector<std::optional<Alias>>& to) {
  const KernelScope scope;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].has_value() && from[i].defined()) to[i]->OnCpu().copy_(from[i]);
  }
}

// Issues the kernel, which also copies the results into `results`.
void IssueKernel(const c10::OperatorHandle& op, const Stack& values,
                 c10::Stream stream, DeferredCall call,
                 const Results& results) {
  std::vector<std::optional<Alias>> outputs;
  for (const at::Tensor& tensor : results.made) {
    outputs.emplace_back();
    if (!tensor.defined()) continue;
    outputs.back().emplace(tensor);
    call.accesses.push_back(Writes(tensor));
  }
  const std::string name = op.schema().name();
  const std::vector<Access> accesses = std::move(call.accesses);
  const double micros =
      options().clock ? KernelMicros(name, values, accesses) : 0;
  Simulation::Get().Issue(
      stream, name, accesses,
      [op, call = std::move(call), outputs] {
        CopyAll(NewTensors(op.schema(), call.Run(op)), outputs);
      },
      micros);
}

// Runs the kernel now, after all work issued on the stream.
Results RunNow(const c10::OperatorHandle& op, const Stack& arguments,
               c10::Stream stream, const DeferredCall& call, bool is_wait) {
  const std::string name = op.schema().name();
  Simulation& simulation = Simulation::Get();
  simulation.Issue(stream, name, call.accesses, [] {});
  if (is_wait) {
    simulation.Synchronize(stream, name);
  } else {
    simulation.Finish(stream);
    simulation.CountEager(name);
  }
  const Stack returned = call.Run(op);
  const c10::FunctionSchema& schema = op.schema();
  if (!ReturnsOnlyTensors(schema)) return {.values = returned, .made = {}};
  Results results = Allocate(schema, arguments, returned, stream.device());
  const std::vector<at::Tensor> values = NewTensors(schema, returned);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].defined() || values[i].numel() == 0) continue;
    simulation.Issue(stream, name, {Writes(results.made[i])},
                     [to = Alias(results.made[i]), from = values[i]] {
                       const KernelScope scope;
                       to.OnCpu().copy_(from);
                     });
  }
  return results;
}

Results RunOperator(const c10::OperatorHandle& op, const Stack& arguments) {
  const c10::FunctionSchema& schema = op.schema();
  ResizeOutputs(op, arguments);
  DeferredCall call(schema, arguments);
  const c10::Device device =
      call.device.value_or(c10::Device(kType, CurrentDevice()));
  const c10::DeviceGuard guard(device);
  const c10::Stream stream = CurrentStream(device.index());
  if (DependsOnValues(schema, arguments)) {
    return RunNow(op, arguments, stream, call, /*is_wait=*/true);
  }
  bool makes_tensors = false;
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    makes_tensors |= !ArgumentReturned(schema, i).has_value();
  }
  std::optional<Stack> shapes;
  if (makes_tensors) {
    shapes = ResultShapes(op, call);
    if (!shapes.has_value()) {
      return RunNow(op, arguments, stream, call, /*is_wait=*/false);
    }
  }
  Results results =
      Allocate(schema, arguments,
               shapes.value_or(Stack(schema.returns().size())), device);
  IssueKernel(op, arguments, stream, std::move(call), results);
  return results;
}

void Fallback(const c10::OperatorHandle& op, Stack* stack) {
  const size_t begin = stack->size() - op.schema().arguments().size();
  const Stack arguments(stack->begin() + static_cast<int64_t>(begin),
                        stack->end());
  Results results = RunOperator(op, arguments);
  stack->resize(begin);
  for (c10::IValue& value : results.values) stack->push_back(std::move(value));
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  if (!options().enabled) return;
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

}  // namespace sim
