// SPDX-License-Identifier: Apache-2.0
// A sharded module's exact call boundary. It is needed only to cast inputs as
// PyTorch's pre-forward hook does, for output_dtype, and to free parameters the
// moment forward returns. The lazy key gathers models that are called in the
// ordinary way. For the thread that trains.
//
//   auto logits = fsdp::forward(model, tokens);      at the call
//   fsdp::Wrapped<BlockImpl> block{nullptr};         in the model
#ifndef FSDP_FORWARD_H_
#define FSDP_FORWARD_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/boundary_hooks.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/visit_tensors.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

class FsdpState;

// One call of one module; the constructor gathers. For a module without
// fully_shard, only the preparations of parallelize_module take effect.
class ForwardBoundary {
 public:
  explicit ForwardBoundary(const torch::nn::Module& module);
  // Moves the next input to the module's device and, if it is floating and the
  // policy says so, casts it to param_dtype.
  void Prepare(at::Tensor& input);
  // Called after forward has returned, not when it threw: frees the parameters,
  // if they reshard after forward.
  void Finish();
  // Casts the next output to the policy's output_dtype.
  void Return(at::Tensor& output);

 private:
  std::shared_ptr<FsdpState> state_;  // null without fully_shard
  std::shared_ptr<const BoundaryHooks> hooks_;
  size_t num_inputs_ = 0;   // prepared so far
  size_t num_outputs_ = 0;  // returned so far
  ForwardScope scope_;
};

// Calls module.forward(args...) inside the boundary.
template <typename Impl, typename... Args>
auto forward(Impl& module, const Args&... args) requires
    std::is_base_of_v<torch::nn::Module, Impl> {
  ForwardBoundary boundary(module);
  std::tuple<Args...> inputs(args...);
  VisitTensors(inputs, [&](at::Tensor& input) { boundary.Prepare(input); });
  auto output = std::apply(
      [&module](auto&... input) { return module.forward(input...); }, inputs);
  boundary.Finish();
  VisitTensors(output, [&](at::Tensor& tensor) { boundary.Return(tensor); });
  return output;
}

template <typename Impl, typename... Args>
auto forward(torch::nn::ModuleHolder<Impl>& module, const Args&... args) {
  return forward(*module, args...);
}

// A module holder, as torch::nn::Linear is for LinearImpl. Calls through it run
// inside the boundary. `block->forward(x)` is the module's own forward and does
// not.
template <typename Impl>
class Wrapped : public torch::nn::ModuleHolder<Impl> {
 public:
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;

  template <typename... Args>
  auto operator()(const Args&... args) {
    return fsdp::forward(*this->get(), args...);
  }
  template <typename... Args>
  auto forward(const Args&... args) {
    return fsdp::forward(*this->get(), args...);
  }
};

}  // namespace fsdp

#endif  // FSDP_FORWARD_H_
