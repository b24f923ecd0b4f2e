// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/deferred_call.h"

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/ops/empty_strided.h"
#include "c10/util/Exception.h"
#include "tests/testing/sim_device/generator.h"
#include "tests/testing/sim_device/simulation.h"

namespace sim {
namespace {

using torch::jit::Stack;

at::Tensor OnMeta(const at::Tensor& tensor) {
  return at::empty_strided(
      tensor.sizes(), tensor.strides(),
      at::TensorOptions(tensor.scalar_type()).device(c10::kMeta));
}

// A generator for only this call.
at::Generator GeneratorForCall(const c10::IValue& value,
                               c10::DeviceIndex device) {
  at::Generator generator =
      value.isNone() ? DefaultGenerator(device) : value.toGenerator();
  auto* const ours =
      dynamic_cast<Generator*>(generator.unsafeGetGeneratorImpl());
  return ours == nullptr
             ? generator
             : at::make_generator<at::CPUGeneratorImpl>(ours->Draw());
}

}  // namespace

std::optional<size_t> ArgumentReturned(const c10::FunctionSchema& schema,
                                       size_t i) {
  const c10::AliasInfo* const result = schema.returns()[i].alias_info();
  if (result == nullptr) return std::nullopt;
  for (size_t j = 0; j < schema.arguments().size(); ++j) {
    const c10::AliasInfo* const argument = schema.arguments()[j].alias_info();
    if (argument != nullptr && argument->beforeSets() == result->beforeSets()) {
      return j;
    }
  }
  return std::nullopt;
}

DeferredCall::DeferredCall(const c10::FunctionSchema& schema,
                           const Stack& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    Add(schema.arguments()[i], values[i], schema.name());
  }
}

at::Tensor DeferredCall::AddTensor(const at::Tensor& tensor, bool is_written,
                                   const std::string& op, Argument& argument) {
  if (IsOurs(tensor)) {
    TORCH_CHECK(!device.has_value() || *device == tensor.device(), op,
                " takes tensors on ", *device, " and on ", tensor.device());
    device = tensor.device();
    argument.tensors.push_back({.alias = Alias(tensor), .host = {}});
    accesses.push_back(is_written ? Writes(tensor) : Reads(tensor));
    return OnMeta(tensor);
  }
  // On a GPU too, numbers and indices may be on the host.
  TORCH_CHECK(!tensor.defined() || tensor.dim() == 0 ||
                  op.find("index") != std::string::npos,
              op, " takes a tensor on ", tensor.device(), " of sizes ",
              tensor.sizes(), " and others on ", kType);
  argument.tensors.push_back(
      {.alias = std::nullopt,
       .host = tensor.defined() ? tensor.detach().clone() : tensor});
  return tensor.defined() && tensor.dim() != 0 ? OnMeta(tensor) : tensor;
}

void DeferredCall::Add(const c10::Argument& declared, const c10::IValue& value,
                       const std::string& op) {
  const c10::AliasInfo* const alias = declared.alias_info();
  const bool is_written = alias != nullptr && alias->isWrite();
  Argument argument;
  if (value.isTensor()) {
    argument.kind = Argument::Kind::kTensor;
    meta.emplace_back(AddTensor(value.toTensor(), is_written, op, argument));
  } else if (value.isTensorList()) {
    argument.kind = Argument::Kind::kTensors;
    c10::List<at::Tensor> metas;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      metas.push_back(AddTensor(tensor, is_written, op, argument));
    }
    meta.emplace_back(metas);
  } else if (value.isOptionalTensorList()) {
    argument.kind = Argument::Kind::kOptionalTensors;
    c10::List<std::optional<at::Tensor>> metas;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      const at::Tensor on_meta =
          AddTensor(tensor.value_or(at::Tensor()), is_written, op, argument);
      metas.push_back(on_meta.defined() ? std::optional(on_meta)
                                        : std::nullopt);
    }
    meta.emplace_back(metas);
  } else if (value.isDevice()) {
    if (!device.has_value()) {
      const c10::Device wanted = value.toDevice();
      device =
          wanted.has_index() ? wanted : c10::Device(kType, CurrentDevice());
    }
    argument.value = c10::Device(c10::kCPU);
    meta.emplace_back(c10::Device(c10::kMeta));
  } else if (declared.name() == "generator") {
    argument.value = GeneratorForCall(
        value, device.has_value() ? device->index() : CurrentDevice());
    meta.emplace_back();
  } else if (declared.name() == "pin_memory") {
    meta.emplace_back();
  } else {
    argument.value = value;
    meta.push_back(value);
  }
  arguments_.push_back(std::move(argument));
}

at::Tensor DeferredCall::TensorArgument::Get(bool zeros) const {
  if (!alias.has_value()) return host;
  return zeros ? alias->ZerosLike() : alias->OnCpu();
}

c10::IValue DeferredCall::Argument::Get(bool zeros) const {
  switch (kind) {
    case Kind::kValue:
      return value;
    case Kind::kTensor:
      return tensors[0].Get(zeros);
    case Kind::kTensors: {
      c10::List<at::Tensor> list;
      for (const TensorArgument& tensor : tensors) {
        list.push_back(tensor.Get(zeros));
      }
      return list;
    }
    case Kind::kOptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (const TensorArgument& argument : tensors) {
        const at::Tensor tensor = argument.Get(zeros);
        list.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
      }
      return list;
    }
  }
  return value;
}

Stack DeferredCall::RunWith(const c10::OperatorHandle& op, bool zeros) const {
  const KernelScope scope;
  Stack stack;
  for (const Argument& argument : arguments_) {
    stack.push_back(argument.Get(zeros));
  }
  op.callBoxed(&stack);
  return stack;
}

Stack DeferredCall::Run(const c10::OperatorHandle& op) const {
  return RunWith(op, /*zeros=*/false);
}

Stack DeferredCall::RunOnZeros(const c10::OperatorHandle& op) const {
  return RunWith(op, /*zeros=*/true);
}

}  // namespace sim
