// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/sim/recipe_parts.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "c10/core/Event.h"
#include "fsdp/extensions/float8.h"
#include "fsdp/extensions/nf4.h"
#include "fsdp/module/activation_offload.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_device/sim_device.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace fsdp::testing {

void Checkpoint(Net& net) { net->checkpoints = true; }

void AddAdapters(Net& net) { net->AddAdapters(); }

void FreezeTheStem(Net& net) {
  for (torch::Tensor& parameter : net->stem->parameters()) {
    parameter.set_requires_grad(false);
  }
}

void FreezeTheBlocks(Net& net) {
  for (torch::nn::Sequential& block : net->blocks) {
    for (torch::Tensor& parameter : block->parameters()) {
      parameter.set_requires_grad(false);
    }
  }
}

void AddStemTwin(Net& net) { net->AddStemTwin(); }

void PrefetchTheNext(Training& training) {
  for (size_t i = 0; i + 1 < training.blocks.size(); ++i) {
    training.blocks[i].set_modules_to_forward_prefetch(
        {training.blocks[i + 1]});
    training.blocks[i + 1].set_modules_to_backward_prefetch(
        {training.blocks[i]});
  }
}

void SetCustomCollectives(Training& training) {
  for (FSDPModule& block : training.blocks) {
    block.set_custom_all_gather(
        [](at::Tensor output, at::Tensor input, c10d::ProcessGroup& group) {
          group.getBackend(output.device().type())
              ->_allgather_base(output, input)
              ->wait();
        });
    block.set_custom_reduce_scatter(
        [](at::Tensor output, at::Tensor input, c10d::ProcessGroup& group) {
          c10d::ReduceScatterOptions options;
          options.reduceOp = c10d::ReduceOp::AVG;
          group.getBackend(output.device().type())
              ->_reduce_scatter_base(output, input, options)
              ->wait();
        });
  }
}

namespace {

void Halve(at::Tensor gradients) { gradients.mul_(0.5); }

}  // namespace

void HookTheReduction(Training& training) {
  for (FSDPModule& block : training.blocks) block.set_all_reduce_hook(Halve);
}

void HookTheReductionOnAStream(Training& training) {
  std::optional<c10::Stream> stream;
  if (training.is_on_device()) {
    stream = sim::NewStream(training.device.index());
    sim::NameStream(*stream, "hook");
  }
  for (FSDPModule& block : training.blocks) {
    block.set_all_reduce_hook(Halve, stream);
  }
}

void ToDouble(Training& training) { training.net->to(at::kDouble); }

void ScaleShards(Training& training) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& shard : training.net->parameters()) shard.mul_(1.01);
}

void ReplaceShards(Training& training) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& shard : training.net->parameters()) {
    shard.set_data(shard * 1.01);
  }
}

void ScaleData(Training& training) {
  for (torch::Tensor& shard : training.net->parameters()) {
    shard.data().mul_(1.01);
  }
}

void RecordAnEvent(Training& training) {
  if (!training.is_on_device()) return;
  auto event = std::make_shared<c10::Event>(c10::kCUDA);
  event->record(
      c10::impl::getDeviceGuardImpl(c10::kCUDA)->getStream(training.device));
  training.root.set_post_optim_event(event);
}

void FailInAForward(Training& training) {
  if (training.step % 3 != 1) return;
  const torch::Tensor x = torch::ones({4, NetImpl::kIn}, training.device);
  const torch::Tensor h =
      training.net->blocks[0]->forward(training.net->stem->forward(x));
  EXPECT_TRUE(h.requires_grad());
}

void FailInABackward(Training& training) {
  if (training.step % 3 != 1) return;
  const torch::Tensor x = torch::ones({4, NetImpl::kIn}, training.device);
  const torch::Tensor h = training.net->stem->forward(x);
  h.register_hook([](const torch::Tensor&) -> torch::Tensor {
    TORCH_CHECK(false, "a bad day");
  });
  const torch::Tensor y = training.net->Head(training.net->Body(h));
  EXPECT_THROW(y.sum().backward(), std::exception);
}

void GatherByHand(Training& training) {
  ScaleShards(training);
  for (FSDPModule& block : training.blocks) block.unshard(/*async=*/true);
}

void WriteWhileGathering(Training& training) {
  for (FSDPModule& block : training.blocks) block.unshard(/*async=*/true);
  ScaleShards(training);
}

torch::Tensor EnterElsewhere(Training& training, const torch::Tensor& x) {
  {
    const torch::NoGradGuard no_grad;
    training.net->forward(x);
    for (torch::Tensor& shard : training.net->parameters()) shard.mul_(1.01);
    training.net->Body(torch::ones({16, NetImpl::kDim}, training.device));
  }
  return training.net->forward(x);
}

torch::Tensor ScaleDataInAForward(Training& training, const torch::Tensor& x) {
  {
    const torch::NoGradGuard no_grad;
    training.net->forward(x);
    ScaleData(training);
    training.net->Body(torch::ones({16, NetImpl::kDim}, training.device));
  }
  return training.net->forward(x);
}

torch::Tensor RunTwice(Training& training, const torch::Tensor& x) {
  return training.net->forward(x) + training.net->forward(x.flip(0));
}

torch::Tensor SkipBlock(Training& training, const torch::Tensor& x) {
  torch::Tensor h = training.net->stem->forward(x);
  for (size_t i = 0; i < training.blocks.size(); ++i) {
    if (static_cast<int64_t>(i) == training.microbatch) continue;
    h = h + training.net->blocks[i]->forward(h);
  }
  return training.net->Head(h);
}

torch::Tensor UsePartOfBlock(Training& training, const torch::Tensor& x) {
  if (training.microbatch != 0) return training.net->forward(x);
  const auto layer = training.net->blocks[0]->ptr<torch::nn::LinearImpl>(1);
  const torch::Tensor h = training.net->stem->forward(x);
  return training.net->Head(h + layer->forward(h).narrow(1, 0, h.size(1)));
}

torch::Tensor OffloadActivations(Training& training, const torch::Tensor& x) {
  const ActivationOffload offload;
  return training.net->forward(x);
}

std::optional<AllGatherExtension> Float8(const std::string& /*name*/,
                                         const at::Tensor& parameter) {
  if (parameter.dim() != 2) return std::nullopt;
  return float8_all_gather();
}

std::optional<AllGatherExtension> Nf4(const std::string& /*name*/,
                                      const at::Tensor& parameter) {
  if (parameter.dim() != 2 || parameter.requires_grad()) return std::nullopt;
  return nf4_storage(parameter);
}

std::optional<AllGatherExtension> Nf4Gather(const std::string& /*name*/,
                                            const at::Tensor& parameter) {
  if (parameter.dim() != 2 || parameter.requires_grad()) return std::nullopt;
  return nf4_all_gather(parameter);
}

std::optional<Shard> OnTheLastDim(const at::Tensor& parameter) {
  if (parameter.dim() == 2 && parameter.size(1) % 2 == 0) return Shard(1);
  return std::nullopt;
}

}  // namespace fsdp::testing
