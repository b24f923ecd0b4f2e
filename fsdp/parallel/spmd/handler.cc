// SPDX-License-Identifier: Apache-2.0
// Finds an operator's rule and runs it, or gathers the arguments.
//
// Tested by tests/fsdp/parallel/spmd/sharded_test.cc.
#include "fsdp/parallel/spmd/handler.h"

#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fsdp/engine/activation_form.h"
#include "fsdp/engine/lazy/lazy_fallback.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/parallel/spmd/bypass.h"
#include "fsdp/parallel/spmd/call.h"
#include "fsdp/parallel/spmd/sharded.h"
#include "fsdp/parallel/spmd/styled_param.h"
#include "fsdp/parallel/spmd/view_copy.h"

namespace fsdp::spmd {
namespace {

using Stack = torch::jit::Stack;

thread_local int strict_depth = 0;

struct Gathered {
  std::mutex mutex;
  std::map<std::string, int64_t> counts;

  static Gathered& Get() {
    static auto* gathered = new Gathered;
    return *gathered;
  }
};

// Describes an operator's arguments.
class Arguments {
 public:
  void Add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (!HasLazyKey(tensor)) {
      has_activation_ = true;
    } else if (const Sharded* sharded = AsSharded(tensor)) {
      Consider(sharded->axis);
      has_activation_ = has_activation_ || sharded->param == nullptr;
    } else if (const StyledParam* param = FindStyledParam(tensor)) {
      Consider(param->axis);
    } else if (IsViewCopy(tensor)) {
      has_activation_ = true;
    }
  }
  void Add(const c10::IValue& value) {
    if (value.isTensor()) {
      Add(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) Add(tensor);
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) Add(element.toTensor());
      }
    }
  }
  // The axis that cuts first; null if no argument is parallel.
  const AxisPtr& axis() const { return axis_; }
  bool has_activation() const { return has_activation_; }

 private:
  void Consider(const AxisPtr& axis) {
    if (!axis_ || axis->level < axis_->level) axis_ = axis;
  }
  AxisPtr axis_;
  bool has_activation_ = false;
};

// An operator's rule, found by the schema's address, which stays the same while
// the program runs.
Rule FindRule(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const c10::FunctionSchema*, Rule> rules;
  const c10::FunctionSchema* schema = &op.schema();
  const auto [found, is_new] = rules.try_emplace(schema, nullptr);
  if (is_new) found->second = LookUpRule(schema->name());
  return found->second;
}

std::string LayoutsText(const Call& call) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < call.num_args(); ++i) {
    if (!call.has_tensor(i)) continue;
    const Operand operand = call.operand(i);
    texts.push_back(absl::StrCat("[", absl::StrJoin(operand.sizes(), ", "),
                                 "] ", to_string(operand.layout())));
  }
  return absl::StrJoin(texts, ", ");
}

c10::IValue Whole(const Call& call, const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    return Operand(value.toTensor(), call.axis()).To(Layout::Same());
  }
  if (!value.isTensorList() && !value.isList()) return value;
  if (value.isTensorList()) {
    std::vector<at::Tensor> whole;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      whole.push_back(Operand(tensor, call.axis()).To(Layout::Same()));
    }
    return whole;
  }
  // Optional tensors, such as indices.
  c10::impl::GenericList list = value.toList().copy();
  for (size_t i = 0; i < list.size(); ++i) {
    const c10::IValue element = list.get(i);
    if (element.isTensor()) list.set(i, Whole(call, element));
  }
  return list;
}

// Whether an argument is cut: a styled parameter may be the whole, and reducing
// a sum gathers nothing.
bool HasCut(const Call& call) {
  for (size_t i = 0; i < call.num_args(); ++i) {
    const c10::IValue& arg = call.arg(i);
    if (call.has_tensor(i) && call.operand(i).is_shard()) return true;
    if (!arg.isTensorList()) continue;
    for (const Operand& operand : call.operands(i)) {
      if (operand.is_shard()) return true;
    }
  }
  return false;
}

void CountGathered(const Call& call) {
  TORCH_CHECK(
      strict_depth == 0, call.name(),
      " has no rule for activations that lie in parts as ", LayoutsText(call),
      ", and would gather them. Change the plan, or leave StrictLayouts");
  Gathered& gathered = Gathered::Get();
  const std::lock_guard<std::mutex> lock(gathered.mutex);
  ++gathered.counts[call.name()];
}

// Without a rule: correct, and slow.
Values GatherAll(Call& call) {
  for (size_t i = 0; i < call.num_args(); ++i) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !call.writes(i) || !call.has_tensor(i) ||
            AsSharded(call.arg(i).toTensor()) == nullptr,
        call.name(), " writes into an activation that lies in parts as ",
        LayoutsText(call),
        ", which it has no rule for. Write into fsdp::full_tensor(x)");
  }
  if (HasCut(call)) CountGathered(call);
  Values whole;
  for (size_t i = 0; i < call.num_args(); ++i) {
    whole.push_back(Whole(call, call.arg(i)));
  }
  return call.Run(std::move(whole));
}

// The engine refuses writes into members.
bool WritesIntoParam(const c10::FunctionSchema& schema, const Stack& stack,
                     size_t begin) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    const c10::IValue& value = stack[begin + i];
    if (value.isTensor() && value.toTensor().defined() &&
        FindStyledParam(value.toTensor()) != nullptr) {
      return true;
    }
  }
  return false;
}

bool Handle(const c10::OperatorHandle& op, Stack* stack) {
  if (BypassHandler::active()) return false;
  const c10::FunctionSchema& schema = op.schema();
  const size_t num_args = schema.arguments().size();
  const size_t begin = stack->size() - num_args;
  Arguments arguments;
  const c10::ArrayRef<c10::IValue> args(stack->data() + begin, num_args);
  for (const c10::IValue& value : args) arguments.Add(value);
  CheckViewCopies(schema, args);
  if (!arguments.axis() || WritesIntoParam(schema, *stack, begin)) return false;
  // A move of a parameter reads it together with nothing else; an activation
  // among the arguments shows that this is a forward.
  std::optional<ForwardScope> forward;
  if (arguments.has_activation()) forward.emplace();
  std::optional<Values> results;
  {
    Call call(op, args, arguments.axis());
    if (const Rule rule = FindRule(op)) results = rule(call);
    if (!results.has_value()) results = GatherAll(call);
    MarkViewCopies(call, *results);
  }
  stack->resize(begin);
  for (c10::IValue& value : *results) stack->push_back(std::move(value));
  return true;
}

// A Sharded activation's form around the part, which may have one, too.
class ShardedForm final : public ActivationForm {
 public:
  ShardedForm(const Sharded& sharded,
              std::shared_ptr<const ActivationForm> inner)
      : layout_(sharded.layout),
        axis_(sharded.axis),
        sizes_(sharded.sizes().vec()),
        inner_(std::move(inner)) {}
  at::Tensor WrapPart(const at::Tensor& part) const override {
    return Wrap(inner_ ? inner_->WrapPart(part) : part, layout_, axis_, sizes_);
  }

 private:
  const Layout layout_;
  const AxisPtr axis_;
  const Sizes sizes_;
  const std::shared_ptr<const ActivationForm> inner_;
};

ActivationPart Split(const at::Tensor& activation) {
  Sharded* sharded = AsSharded(activation);
  if (sharded == nullptr) return {activation, nullptr};
  Settle(*sharded);
  ActivationPart inner = Split(sharded->local);
  return {std::move(inner.part),
          std::make_shared<ShardedForm>(*sharded, std::move(inner.form))};
}

}  // namespace

void InstallHandler() {
  SetOperatorHook(&Handle);
  SetActivationSplitter(&Split);
}

std::map<std::string, int64_t> gathered_operators(bool reset) {
  Gathered& gathered = Gathered::Get();
  const std::lock_guard<std::mutex> lock(gathered.mutex);
  std::map<std::string, int64_t> counts = gathered.counts;
  if (reset) gathered.counts.clear();
  return counts;
}

StrictLayouts::StrictLayouts() { ++strict_depth; }
StrictLayouts::~StrictLayouts() { --strict_depth; }

}  // namespace fsdp::spmd
