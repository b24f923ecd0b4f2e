// SPDX-License-Identifier: Apache-2.0
// A checkpoint's backward, in this order:
//   1. The random state and the autocast settings from the first run are
//      restored.
//   2. fn runs on detached inputs, with grad mode on. It gathers parameters
//      under fully_shard. The current graph task is still the outer backward's,
//      so the engine is notified when the outer backward ends.
//   3. The backward's random state is restored.
//   4. A nested backward runs from the outputs to the detached inputs and to
//      the leaves that fn captured. Their gradients accumulate as usual. It may
//      be the first to need a module's parameters under fully_shard (if fn
//      captured a tensor that was computed from them). So the engine is told
//      about the outer backward before: the nested one's end is not the end.
//   5. The gradients of the detached inputs continue in the outer backward.
#include "fsdp/module/activation_checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ATen/Context.h"
#include "ATen/autocast_mode.h"
#include "ATen/ops/empty.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/activation_form.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/engine/step_scheduler.h"
#include "torch/csrc/autograd/autograd.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/csrc/autograd/engine.h"
#include "torch/nn/modules/container/sequential.h"

namespace fsdp {
namespace {

using Tensors = std::vector<at::Tensor>;
using Fn = std::function<Tensors(const Tensors&)>;

// ---- Random state ----------------------------------------------------------

// The generators for the CPU and for every other device with inputs.
std::vector<at::Generator> GeneratorsFor(const Tensors& inputs) {
  std::vector<at::Generator> generators = {
      at::globalContext().defaultGenerator(at::kCPU)};
  std::vector<at::Device> seen = {at::Device(at::kCPU), at::Device(at::kMeta)};
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) continue;
    const bool known =
        std::any_of(seen.begin(), seen.end(), [&input](at::Device device) {
          return device == input.device() ||
                 (!device.has_index() &&
                  device.type() == input.device().type());
        });
    if (known) continue;
    seen.push_back(input.device());
    generators.push_back(at::globalContext().defaultGenerator(input.device()));
  }
  return generators;
}

class RngState {
 public:
  explicit RngState(std::vector<at::Generator> generators)
      : generators_(std::move(generators)) {
    for (at::Generator& generator : generators_) {
      std::lock_guard<std::mutex> lock(generator.mutex());
      states_.push_back(generator.get_state());
    }
  }
  void Restore() {
    for (size_t i = 0; i < generators_.size(); ++i) {
      std::lock_guard<std::mutex> lock(generators_[i].mutex());
      generators_[i].set_state(states_[i]);
    }
  }
  const std::vector<at::Generator>& generators() const { return generators_; }

 private:
  std::vector<at::Generator> generators_;
  Tensors states_;
};

// Sets the generators to `state` while this object lives.
class RngScope {
 public:
  explicit RngScope(RngState& state) : outer_(state.generators()) {
    state.Restore();
  }
  ~RngScope() { outer_.Restore(); }
  RngScope(const RngScope&) = delete;
  RngScope& operator=(const RngScope&) = delete;

 private:
  RngState outer_;
};

// ---- Autocast --------------------------------------------------------------

constexpr at::DeviceType kAutocastDevices[] = {at::kCPU, at::kCUDA};

struct AutocastState {
  struct Device {
    bool enabled;
    at::ScalarType dtype;
  };
  Device devices[2];
  bool cache_enabled;

  static AutocastState Now() {
    AutocastState state;
    for (size_t i = 0; i < std::size(kAutocastDevices); ++i) {
      state.devices[i] = {
          at::autocast::is_autocast_enabled(kAutocastDevices[i]),
          at::autocast::get_autocast_dtype(kAutocastDevices[i])};
    }
    state.cache_enabled = at::autocast::is_autocast_cache_enabled();
    return state;
  }
  void Restore() const {
    for (size_t i = 0; i < std::size(kAutocastDevices); ++i) {
      at::autocast::set_autocast_enabled(kAutocastDevices[i],
                                         devices[i].enabled);
      at::autocast::set_autocast_dtype(kAutocastDevices[i], devices[i].dtype);
    }
    at::autocast::set_autocast_cache_enabled(cache_enabled);
  }
};

// Like Python's autocast context: the outermost one drops autocast's cached
// weight casts, which belong to the graph that was recorded in it.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state)
      : outer_(AutocastState::Now()) {
    at::autocast::increment_nesting();
    state.Restore();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    outer_.Restore();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const AutocastState outer_;
};

// ---- The function ----------------------------------------------------------

// The defined tensors in `all`; sets `positions` to their places.
Tensors Defined(const Tensors& all, std::vector<size_t>& positions) {
  Tensors defined;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].defined()) continue;
    defined.push_back(all[i]);
    positions.push_back(i);
  }
  return defined;
}

// One call to checkpoint: shared by the autograd node and, during the call, by
// the caller.
struct Call : torch::CustomClassHolder {
  Fn fn;
  std::optional<RngState> rng;
  AutocastState autocast;
  size_t num_inputs = 0;
  std::vector<size_t> inputs;  // places of the defined ones
  size_t num_outputs = 0;
  std::vector<size_t> outputs;
  // The scheduler of the modules under fully_shard in or around fn.
  std::weak_ptr<StepScheduler> scheduler;
};

Tensors AtPositions(at::TensorList defined,
                    const std::vector<size_t>& positions, size_t size) {
  Tensors all(size);
  for (size_t i = 0; i < positions.size(); ++i) all[positions[i]] = defined[i];
  return all;
}

class CheckpointFunction
    : public torch::autograd::Function<CheckpointFunction> {
 public:
  // `anchor`, which has no elements, requires grad, so that the node is
  // recorded even when no input does, because parameters inside need gradients.
  static Tensors forward(torch::autograd::AutogradContext* context,
                         const at::Tensor& /*anchor*/, at::TensorList inputs,
                         const c10::intrusive_ptr<Call>& call) {
    const Tensors all =
        call->fn(AtPositions(inputs, call->inputs, call->num_inputs));
    call->scheduler = StepScheduler::LastUsed();
    call->num_outputs = all.size();
    Tensors outputs = Defined(all, call->outputs);
    Tensors integers;
    for (const at::Tensor& output : outputs) {
      if (!output.is_floating_point() && !output.is_complex()) {
        integers.push_back(output);
      }
    }
    context->mark_non_differentiable(integers);
    context->save_for_backward(inputs.vec());
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return outputs;
  }

  static Tensors backward(torch::autograd::AutogradContext* context,
                          Tensors gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !at::GradMode::is_enabled(),
        "checkpoint: backward with create_graph=true would differentiate the "
        "recomputation itself; call the function without checkpoint");
    TORCH_CHECK(
        torch::autograd::Engine::get_default_engine().is_checkpoint_valid(),
        "checkpoint: recomputation accumulates into every leaf, so "
        "torch::autograd::grad and backward with `inputs` cannot be served; "
        "call backward without `inputs`, or do not use checkpoint");
    const auto call = c10::static_intrusive_pointer_cast<Call>(
        context->saved_data["call"].toCapsule());

    Tensors inputs;
    for (const at::Tensor& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach().set_requires_grad(saved.requires_grad()));
    }
    const Tensors outputs = Recompute(*call, inputs);
    Tensors roots;
    Tensors root_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
    if (const auto used = call->scheduler.lock()) used->QueueFinalCallback();
    if (!roots.empty()) torch::autograd::backward(roots, root_gradients);

    Tensors result = {at::Tensor()};  // for the anchor
    for (const at::Tensor& input : inputs) result.push_back(input.grad());
    result.emplace_back();  // for the call
    return result;
  }

 private:
  // The defined outputs.
  static Tensors Recompute(Call& call, const Tensors& inputs) {
    std::optional<RngScope> rng;
    if (call.rng.has_value()) rng.emplace(*call.rng);
    AutocastScope autocast(call.autocast);
    at::AutoGradMode grad_mode(true);
    const Tensors all =
        call.fn(AtPositions(inputs, call.inputs, call.num_inputs));
    std::vector<size_t> positions;
    Tensors outputs = Defined(all, positions);
    TORCH_CHECK(all.size() == call.num_outputs && positions == call.outputs,
                "checkpoint: the function returned ", call.outputs.size(),
                " defined tensors of ", call.num_outputs, " in forward, but ",
                positions.size(), " of ", all.size(),
                " when it ran again; it must do the same both times");
    return outputs;
  }
};

}  // namespace

bool is_checkpoint(const torch::autograd::Node& node) {
  return dynamic_cast<const torch::autograd::CppNode<CheckpointFunction>*>(
             &node) != nullptr;
}

Tensors checkpoint_tensors(Fn fn, const Tensors& inputs,
                           const CheckpointOptions& options) {
  TORCH_CHECK_VALUE(fn != nullptr, "checkpoint: the function is empty");
  if (!at::GradMode::is_enabled()) return fn(inputs);
  auto call = c10::make_intrusive<Call>();
  Tensors parts = inputs;
  const auto forms = std::make_shared<ActivationForms>();
  call->fn = OnParts(std::move(fn), parts, forms);
  if (options.preserve_rng_state) call->rng.emplace(GeneratorsFor(parts));
  call->autocast = AutocastState::Now();
  call->num_inputs = parts.size();
  const Tensors defined = Defined(parts, call->inputs);
  const at::Tensor anchor = at::empty({0}, at::kFloat).set_requires_grad(true);
  const Tensors outputs =
      CheckpointFunction::apply(anchor, at::TensorList(defined), call);
  Tensors results = AtPositions(outputs, call->outputs, call->num_outputs);
  WrapParts(results, *forms);
  return results;
}

// ---- Modules ---------------------------------------------------------------

namespace {

struct Switch {
  std::weak_ptr<torch::nn::Module> module;  // shows that the address is reused
  bool enabled = true;
};

// Modules that Checkpointed holders run. Dead ones are dropped whenever the
// count has doubled, so that the modules alive bound the size.
class Switches {
 public:
  static Switches& Get() {
    static Switches* const switches = new Switches;
    return *switches;
  }

  void Add(const std::shared_ptr<torch::nn::Module>& module) {
    std::lock_guard<std::mutex> lock(mutex_);
    Switch& entry = entries_[module.get()];
    if (!entry.module.expired()) return;
    entry = {.module = module};
    if (entries_.size() < 2 * num_after_sweep_ + 64) return;
    std::erase_if(entries_,
                  [](const auto& e) { return e.second.module.expired(); });
    num_after_sweep_ = entries_.size();
  }
  std::optional<bool> Find(const torch::nn::Module& module) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entries_.find(&module);
    if (found == entries_.end() || found->second.module.expired()) return {};
    return found->second.enabled;
  }
  void Set(const torch::nn::Module& module, bool enabled) {
    std::lock_guard<std::mutex> lock(mutex_);
    entries_.at(&module).enabled = enabled;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const torch::nn::Module*, Switch> entries_;
  size_t num_after_sweep_ = 0;
};

// The entry in a Sequential that replaces a checkpointed child. It has another
// type, so that torch refuses typed access to the child.
class CheckpointedChild final : public torch::nn::AnyModulePlaceholder {
 public:
  explicit CheckpointedChild(torch::nn::AnyModule inner)
      : AnyModulePlaceholder(typeid(CheckpointedChild)),
        inner_(std::move(inner)) {}

  const torch::nn::AnyModule& inner() const { return inner_; }

  torch::nn::AnyValue forward(
      std::vector<torch::nn::AnyValue>&& arguments) override {
    return checkpoint(
        [inner = inner_](std::vector<torch::nn::AnyValue> given) mutable {
          torch::nn::AnyValue result =
              AnyModuleContent(inner)->forward(std::move(given));
          TORCH_CHECK_TYPE(result.try_get<at::Tensor>() != nullptr,
                           "checkpoint: ", type_name(*inner.ptr()),
                           " in a Sequential returns ",
                           c10::demangle(result.type_info().name()),
                           "; only a Tensor can be checkpointed there");
          return result;
        },
        arguments);
  }
  std::shared_ptr<torch::nn::Module> ptr() override { return inner_.ptr(); }
  std::unique_ptr<AnyModulePlaceholder> copy() const override {
    return std::make_unique<CheckpointedChild>(inner_);
  }
  std::unique_ptr<AnyModulePlaceholder> clone_module(
      std::optional<at::Device> device) const override {
    return std::make_unique<CheckpointedChild>(inner_.clone(device));
  }

 private:
  torch::nn::AnyModule inner_;
};

void SetChild(torch::nn::AnyModule& child, bool checkpointed) {
  auto* const wrapper =
      dynamic_cast<CheckpointedChild*>(AnyModuleContent(child).get());
  if ((wrapper != nullptr) == checkpointed) return;
  if (checkpointed) {
    torch::nn::AnyModule inner = std::move(child);
    AnyModuleContent(child) =
        std::make_unique<CheckpointedChild>(std::move(inner));
  } else {
    torch::nn::AnyModule inner = wrapper->inner();
    child = std::move(inner);
  }
}

}  // namespace

bool is_checkpointed(const torch::nn::Module& module) {
  return Switches::Get().Find(module).value_or(false);
}

void internal::AddCheckpointedHolder(
    const std::shared_ptr<torch::nn::Module>& module) {
  Switches::Get().Add(module);
}

namespace {

std::vector<torch::nn::SequentialImpl*> FindSequentials(
    torch::nn::Module& module) {
  std::vector<torch::nn::SequentialImpl*> sequentials;
  if (auto* sequential = module.as<torch::nn::SequentialImpl>()) {
    sequentials.push_back(sequential);
  }
  for (const auto& below : module.modules(/*include_self=*/false)) {
    if (auto* sequential = below->as<torch::nn::SequentialImpl>()) {
      sequentials.push_back(sequential);
    }
  }
  return sequentials;
}

}  // namespace

std::unordered_set<const torch::nn::Module*> checkpointable_modules(
    torch::nn::Module& module) {
  std::unordered_set<const torch::nn::Module*> found;
  for (torch::nn::SequentialImpl* sequential : FindSequentials(module)) {
    for (torch::nn::AnyModule& child : *sequential) {
      found.insert(child.ptr().get());
    }
  }
  for (const auto& below : module.modules(/*include_self=*/false)) {
    if (Switches::Get().Find(*below).has_value()) found.insert(below.get());
  }
  return found;
}

void apply_activation_checkpointing(
    torch::nn::Module& module,
    const std::function<bool(const torch::nn::Module&)>& check_fn) {
  TORCH_CHECK_VALUE(check_fn != nullptr,
                    "apply_activation_checkpointing: check_fn is empty");
  const std::unordered_set<const torch::nn::Module*> checkpointable =
      checkpointable_modules(module);
  std::unordered_set<const torch::nn::Module*> chosen;
  std::vector<const torch::nn::Module*> held;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    const torch::nn::Module& below = *item.value();
    if (Switches::Get().Find(below).has_value()) held.push_back(&below);
    if (!check_fn(below)) continue;
    chosen.insert(&below);
    TORCH_CHECK_VALUE(
        checkpointable.count(&below) != 0,
        "apply_activation_checkpointing: cannot intercept calls to '",
        item.key(), "' (", type_name(below),
        "), which check_fn accepts: it is neither a child of a Sequential nor "
        "held as fsdp::Checkpointed<...>. Hold it so and call it as "
        "holder(x), or call fsdp::checkpoint in the forward around it");
  }
  for (const torch::nn::Module* below : held) {
    Switches::Get().Set(*below, chosen.count(below) != 0);
  }
  for (torch::nn::SequentialImpl* sequential : FindSequentials(module)) {
    for (torch::nn::AnyModule& child : *sequential) {
      SetChild(child, chosen.count(child.ptr().get()) != 0);
    }
  }
}

}  // namespace fsdp
