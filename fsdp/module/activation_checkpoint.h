// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: a part of forward keeps only the inputs and runs
// again in backward. Equivalent to PyTorch's
// torch.utils.checkpoint(use_reentrant=True) and
// apply_activation_checkpointing. For the threads of forward and backward.
//
// There are three ways to request it:
//   h = fsdp::checkpoint([&](at::Tensor t) { return block->forward(t); }, h);
//                                    a function, inside a forward
//   fsdp::Checkpointed<BlockImpl> block{...};  h = block(h);
//                                    a model's member that may be switched off
//                                    and on
//   a child of torch::nn::Sequential, which needs no change at all,
// and apply_activation_checkpointing chooses among the last two by predicate.
// None of them changes parameter names.
//
// Recomputation runs inside backward, under the random state and the autocast
// settings of the first run. Parameters under fully_shard are gathered once for
// it and for the backward that follows it.
#ifndef FSDP_MODULE_ACTIVATION_CHECKPOINT_H_
#define FSDP_MODULE_ACTIVATION_CHECKPOINT_H_

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "fsdp/engine/visit_tensors.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace torch::autograd {
struct Node;
}  // namespace torch::autograd

namespace fsdp {

struct CheckpointOptions {
  // Recompute with the random numbers of the first run. Costs a copy of the
  // generators' state; not needed when fn draws no random numbers.
  bool preserve_rng_state = true;
};

// Calls `fn(inputs)` without recording it, and again in backward. fn must do
// the same both times, and must not write into its inputs. Captured tensors get
// gradients if they are leaves, such as parameters; all others must be inputs,
// because their graph would end here otherwise. Inputs and outputs may be
// undefined or not floating. Floating outputs require grad, whether or not an
// input does. Without grad mode it just calls fn. Backward throws c10::Error
// for torch::autograd::grad, for backward with `inputs`, and when the second
// run's result differs from the first's; c10::NotImplementedError for
// create_graph.
std::vector<at::Tensor> checkpoint_tensors(
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> fn,
    const std::vector<at::Tensor>& inputs,
    const CheckpointOptions& options = {});

// Whether an autograd node was recorded by a checkpoint: it cannot compute the
// gradients for inputs alone.
bool is_checkpoint(const torch::autograd::Node& node);

// The same for a function with any arguments and any result: the tensors among
// them (see visit_tensors.h) are inputs and outputs, and everything else is
// kept by copy.
template <typename Fn, typename... Args>
auto checkpoint(Fn fn, const Args&... args)
    -> std::decay_t<std::invoke_result_t<Fn&, Args...>> {
  using Result = std::decay_t<std::invoke_result_t<Fn&, Args...>>;
  using Tensors = std::vector<at::Tensor>;
  if (!at::GradMode::is_enabled()) return fn(args...);

  Tensors inputs;
  std::tuple<Args...> rest(args...);
  VisitTensors(rest, [&inputs](at::Tensor& tensor) {
    inputs.push_back(std::exchange(tensor, at::Tensor()));
  });
  // The first run's result, without tensors; later runs leave it alone.
  auto first = std::make_shared<std::optional<Result>>();
  Tensors outputs = checkpoint_tensors(
      [fn = std::move(fn), rest = std::move(rest),
       weak = std::weak_ptr(first)](const Tensors& given) mutable {
        std::tuple<Args...> values = rest;
        auto next = given.begin();
        VisitTensors(values, [&next](at::Tensor& tensor) { tensor = *next++; });
        Result result = std::apply(fn, std::move(values));
        Tensors tensors;
        VisitTensors(result, [&tensors](at::Tensor& tensor) {
          tensors.push_back(std::exchange(tensor, at::Tensor()));
        });
        if (auto wanted = weak.lock()) *wanted = std::move(result);
        return tensors;
      },
      inputs);
  Result result = std::move(**first);
  auto next = outputs.begin();
  VisitTensors(result, [&next](at::Tensor& tensor) { tensor = *next++; });
  return result;
}

// Whether holders run this module under checkpoint.
bool is_checkpointed(const torch::nn::Module& module);

namespace internal {
// Records that a holder runs `module`, which is checkpointed unless it was
// switched off before.
void AddCheckpointedHolder(const std::shared_ptr<torch::nn::Module>& module);
}  // namespace internal

// A module holder, as torch::nn::Linear is for LinearImpl. Calls to it run
// forward under checkpoint until apply_activation_checkpointing says otherwise.
// The switch belongs to the module, so all holders agree. It affects only calls
// through the holder, `block(x)` and `block.forward(x)`; `block->forward(x)` is
// the module's own forward.
template <typename Impl>
class Checkpointed : public torch::nn::ModuleHolder<Impl> {
 public:
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;

  template <typename... Args>
  auto operator()(const Args&... args) {
    return forward(args...);
  }
  template <typename... Args>
  auto forward(const Args&... args) {
    std::shared_ptr<Impl> impl = this->ptr();
    if (!is_checkpointed(*impl)) return impl->forward(args...);
    return checkpoint(
        [impl](const auto&... given) { return impl->forward(given...); },
        args...);
  }

 private:
  struct Registration {
    explicit Registration(const std::shared_ptr<Impl>& impl) {
      if (impl != nullptr) internal::AddCheckpointedHolder(impl);
    }
  };
  Registration registration_{this->impl_};
};

// The modules below `module` that apply_activation_checkpointing can switch.
std::unordered_set<const torch::nn::Module*> checkpointable_modules(
    torch::nn::Module& module);

// Afterwards exactly those modules below `module` that `check_fn` accepts run
// under checkpoint, wherever they are held in one of the last two ways above;
// the others do not. check_fn is never asked about the root. Throws
// c10::ValueError, and changes nothing, when check_fn accepts a module that is
// neither a child of a Sequential nor held as Checkpointed, because calls to it
// cannot be intercepted.
//
// A Sequential's names, children and `seq[i]` stay the same. While a child is
// checkpointed, torch refuses `seq->at<T>(i)` and `seq->ptr<T>(i)`, which ask
// for the exact type. The child must return a Tensor.
void apply_activation_checkpointing(
    torch::nn::Module& module,
    const std::function<bool(const torch::nn::Module&)>& check_fn);

}  // namespace fsdp

#endif  // FSDP_MODULE_ACTIVATION_CHECKPOINT_H_
