// SPDX-License-Identifier: Apache-2.0
// Zoo: a model and one step, run with and without fully_shard; outputs,
// gradients and buffers are equal, where the ranks average the gradients. In
// float64, so that rounding hides nothing. Within a rank of RunRanks.
#ifndef TESTS_FSDP_MODULE_MODULE_ZOO_H_
#define TESTS_FSDP_MODULE_MODULE_ZOO_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/module_access.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/report.h"
#include "gtest/gtest.h"
#include "torch/nn.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp::testing {

using Tensors = std::vector<torch::Tensor>;

// Puts every child that has a forward in a group, and the rest in the root's.
inline void ShardChildren(const std::shared_ptr<torch::nn::Module>& model,
                          const FullyShardOptions& options) {
  for (const auto& child : model->children()) {
    if (!is_container_without_forward(*child)) fully_shard(child, options);
  }
  fully_shard(model, options);
}

// Different on every rank and in every step, equal in both models.
inline torch::Tensor Input(at::IntArrayRef sizes) {
  return torch::randn(sizes);
}

// One model in the zoo. `run` does forward and backward, whether sharded or
// not, and returns the tensors to compare.
template <typename Impl>
struct Zoo {
  std::function<std::shared_ptr<Impl>()> make;
  std::function<Tensors(Impl&)> run;
  std::function<void(const std::shared_ptr<torch::nn::Module>&,
                     const FullyShardOptions&)>
      shard = ShardChildren;
  FullyShardOptions options = {};
  int num_steps = 2;
};

template <typename Impl>
Tensors RunOnce(const Zoo<Impl>& zoo, Impl& model, int step) {
  torch::manual_seed(100 * step + get_rank());
  return zoo.run(model);
}

inline torch::Tensor AverageOverRanks(const torch::Tensor& tensor) {
  Tensors sum{tensor.clone()};
  world_group()->allreduce(sum)->wait();
  return sum[0] / static_cast<double>(get_world_size());
}

inline void ExpectClose(const torch::Tensor& got, const torch::Tensor& want,
                        const std::string& what) {
  ASSERT_EQ(got.defined(), want.defined()) << what;
  if (!got.defined()) return;
  EXPECT_EQ(got.sizes(), want.sizes()) << what;
  EXPECT_TRUE(torch::allclose(got, want, /*rtol=*/1e-9, /*atol=*/1e-11))
      << what << ": " << (got - want).abs().max().template item<double>();
}

inline void ExpectSameGradients(torch::nn::Module& model,
                                const torch::nn::Module& reference,
                                const std::string& where) {
  const auto want = reference.named_parameters();
  for (const auto& [name, parameter] : fsdp::named_parameters(model)) {
    const std::optional<DTensor> grad = parameter.grad();
    const torch::Tensor& local = want[name].grad();
    const torch::Tensor average =
        local.defined() ? AverageOverRanks(local) : torch::Tensor();
    ExpectClose(grad.has_value() ? grad->full_tensor() : torch::Tensor(),
                average, where + " gradient of " + name);
    want[name].mutable_grad() = average;
  }
}

// Inside a rank.
template <typename Impl>
void ExpectSame(const std::string& name, const Zoo<Impl>& zoo) {
  SCOPED_TRACE(name);
  torch::manual_seed(42);
  const std::shared_ptr<Impl> reference = zoo.make();
  torch::manual_seed(42);
  const std::shared_ptr<Impl> model = zoo.make();
  zoo.shard(model, zoo.options);
  ASSERT_EQ(fsdp::named_parameters(*model).size(),
            reference->parameters().size());
  torch::optim::SGD reference_optimizer(reference->parameters(), 0.1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int step = 0; step < zoo.num_steps; ++step) {
    const std::string where = "step " + std::to_string(step);
    reference_optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
    optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
    const Tensors want = RunOnce(zoo, *reference, step);
    const Tensors got = RunOnce(zoo, *model, step);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ExpectClose(got[i].detach(), want[i].detach(),
                  where + " output " + std::to_string(i));
    }
    ExpectSameGradients(*model, *reference, where);
    const auto buffers = reference->named_buffers();
    for (const auto& item : model->named_buffers()) {
      ExpectClose(item.value(), buffers[item.key()], where + item.key());
    }
    reference_optimizer.step();
    optimizer.step();
  }
  EXPECT_EQ(step_report(*model).unsharded_bytes, 0u);
}

// Returns `output` after a backward from a number computed from it.
inline torch::Tensor Trained(const torch::Tensor& output) {
  (output * output + output).sum().backward();
  return output;
}

struct ReaderImpl : torch::nn::Module {
  ReaderImpl() : weight(register_parameter("weight", torch::randn({6, 6}))) {}
  torch::Tensor weight;
};

// A chain of modules with one parameter each, a matrix.
struct ReadersImpl : torch::nn::Module {
  ReadersImpl()
      : a(register_module("a", std::make_shared<ReaderImpl>())),
        b(register_module("b", std::make_shared<ReaderImpl>())),
        norm(register_module(
            "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))) {}
  std::shared_ptr<ReaderImpl> a, b;
  torch::nn::LayerNorm norm;
};

inline Zoo<ReadersImpl> Readers(std::function<Tensors(ReadersImpl&)> run) {
  return {.make = [] { return std::make_shared<ReadersImpl>(); },
          .run = std::move(run)};
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_MODULE_MODULE_ZOO_H_
