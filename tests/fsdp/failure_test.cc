// SPDX-License-Identifier: Apache-2.0
// Failures and destruction: after an error in forward or backward the model can
// still be trained; a rank that dies or hangs becomes an error on the others,
// soon and with names; models, outputs, handles and optimizers may be destroyed
// in any order.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/optim/adam.h"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

constexpr TinyModelOptions kSmall = {.vocabulary = 11, .dim = 6, .length = 4};

TinyModel MakeModel() {
  torch::manual_seed(42);
  return TinyModel(kSmall);
}

TinyModel MakeSharded() {
  TinyModel model = MakeModel();
  for (const auto& block : *model->blocks) fully_shard(block);
  fully_shard(model);
  return model;
}

// This rank's part of a step's batch, or the complete batch.
Tensor Mine(int step) {
  return TinyBatch(step, 6, kSmall).chunk(get_world_size())[get_rank()];
}

// Trains a sharded model and a whole one for comparison.
class Pair {
 public:
  Pair()
      : model(MakeSharded()),
        reference_(MakeModel()),
        optimizer_(model->parameters(), torch::optim::AdamOptions(1e-2)),
        reference_optimizer_(reference_->parameters(),
                             torch::optim::AdamOptions(1e-2)) {}

  void ExpectStepsAreRight() {
    for (int step = 0; step < 2; ++step) {
      optimizer_.zero_grad();
      reference_optimizer_.zero_grad();
      TinyLoss(model, Mine(step)).backward();
      TinyLoss(reference_, TinyBatch(step, 6, kSmall)).backward();
      const auto want = reference_->named_parameters();
      for (const auto& [name, parameter] : named_parameters(*model)) {
        EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                    want[name].grad(), 1e-4, 1e-6))
            << "step " << step << " " << name;
      }
      EXPECT_EQ(step_report(*model).unsharded_bytes, 0u);
      optimizer_.step();
      reference_optimizer_.step();
    }
  }

  TinyModel model;

 private:
  TinyModel reference_;
  torch::optim::Adam optimizer_;
  torch::optim::Adam reference_optimizer_;
};

// ---- Errors ----------------------------------------------------------------

// The identity, which fails in forward or in backward as requested.
struct Fails : torch::autograd::Function<Fails> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x,
                        bool in_forward) {
    TORCH_CHECK(!in_forward, "forward fails");
    return x.view_as(x);
  }
  static Tensors backward(torch::autograd::AutogradContext*, const Tensors&) {
    TORCH_CHECK(false, "backward fails");
  }
};

// The model, with a failure before the block `at`.
Tensor LossThatFails(TinyModel& model, int64_t at, bool in_forward) {
  const Tensor tokens = Mine(/*step=*/9).narrow(1, 0, kSmall.length);
  Tensor h =
      model->tokens(tokens) + model->positions(torch::arange(kSmall.length));
  for (int64_t i = 0; i < kSmall.num_blocks; ++i) {
    if (i == at) h = Fails::apply(h, in_forward);
    h = model->blocks[i]->as<Block>()->forward(h);
  }
  return model->head(model->norm(h)).square().sum();
}

TEST(Failure, AForwardThatThrows) {
  RunRanks(2, [] {
    StartRank();
    Pair pair;
    for (int64_t at = 0; at < kSmall.num_blocks; ++at) {
      EXPECT_THAT(ThrownMessage([&] { LossThatFails(pair.model, at, true); }),
                  HasSubstr("forward fails"));
      pair.ExpectStepsAreRight();
    }
    const torch::NoGradGuard no_grad;
    EXPECT_THAT(ThrownMessage([&] { LossThatFails(pair.model, 1, true); }),
                HasSubstr("forward fails"));
    at::AutoGradMode grad(true);
    pair.ExpectStepsAreRight();
  });
}

TEST(Failure, ABackwardThatThrows) {
  RunRanks(2, [] {
    StartRank();
    Pair pair;
    for (int64_t at = 0; at < kSmall.num_blocks; ++at) {
      // Reductions of the later blocks are done or under way, and a gather of
      // the earlier block is under way.
      const Tensor loss = LossThatFails(pair.model, at, false);
      EXPECT_THAT(ThrownMessage([&] { loss.backward(); }),
                  HasSubstr("backward fails"));
      pair.ExpectStepsAreRight();
    }
    // Once without a step in between, and once with gradients that were
    // accumulated.
    FSDPModule root = get_fsdp_module(*pair.model);
    root.set_requires_gradient_sync(false);
    for (int i = 0; i < 2; ++i) {
      const Tensor loss = LossThatFails(pair.model, 1, false);
      EXPECT_THAT(ThrownMessage([&] { loss.backward(); }),
                  HasSubstr("backward fails"));
    }
    root.set_requires_gradient_sync(true);
    pair.ExpectStepsAreRight();
  });
}

TEST(Failure, AHookThatThrows) {
  RunRanks(2, [] {
    StartRank();
    Pair pair;
    FSDPModule block = get_fsdp_module(*pair.model->blocks[1]);
    block.set_all_reduce_hook(
        [](const at::Tensor&) { TORCH_CHECK(false, "hook fails"); });
    const Tensor loss = TinyLoss(pair.model, Mine(0));
    EXPECT_THAT(ThrownMessage([&] { loss.backward(); }),
                HasSubstr("hook fails"));
    block.set_all_reduce_hook(nullptr);
    pair.ExpectStepsAreRight();
  });
}

// ---- Ranks that die or hang ------------------------------------------------

constexpr std::chrono::seconds kTimeout(3);
// Errors come when a connection closes or kTimeout passes, but on a slow
// machine ranks take their time to start.
constexpr std::chrono::seconds kBound(180);

// A trained, sharded model. From now on the ranks wait no longer than kTimeout
// for one another.
TinyModel MakeTrained() {
  StartRank();
  TinyModel model = MakeSharded();
  TinyLoss(model, Mine(0)).backward();
  parameters(*model)[0]
      .device_mesh()
      .get_group()
      ->getBackend(c10::kCPU)
      ->setTimeout(kTimeout);
  return model;
}

std::string TrainUntilItFails(TinyModel& model) {
  return ThrownMessage([&] {
    for (int step = 0; step < 1000; ++step) {
      TinyLoss(model, Mine(step)).backward();
    }
  });
}

TEST(Failure, ARankThatIsKilled) {
  // In forward, and between two collectives in backward.
  for (const bool in_forward : {true, false}) {
    RunRanks(3,
             [in_forward] {
               TinyModel model = MakeTrained();
               if (get_rank() == 1) {
                 const Tensor tokens = Mine(1).narrow(1, 0, kSmall.length);
                 Tensor h = model->tokens(tokens);
                 h = model->blocks[0]->as<Block>()->forward(h);
                 if (!in_forward) {
                   h.register_hook([](const Tensor&) { raise(SIGKILL); });
                   for (int i : {1, 2}) {
                     h = model->blocks[i]->as<Block>()->forward(h);
                   }
                   model->head(model->norm(h)).sum().backward();
                 }
                 raise(SIGKILL);
               }
               const std::string error = TrainUntilItFails(model);
               EXPECT_THAT(error,
                           AllOf(HasSubstr(get_rank() == 0 ? "rank 0 of 3"
                                                           : "rank 2 of 3"),
                                 HasSubstr("in group \"")));
               EXPECT_THAT(error, AnyOf(HasSubstr("all-gather of "),
                                        HasSubstr("reduce-scatter of ")));
               // A second attempt fails at once, without a hang or a crash.
               EXPECT_FALSE(TrainUntilItFails(model).empty());
             },
             {.deadline = kBound, .may_die = {1}});
  }
}

TEST(Failure, ARankThatHangs) {
  RunRanks(2,
           [] {
             TinyModel model = MakeTrained();
             if (get_rank() == 0) {
               EXPECT_THAT(TrainUntilItFails(model),
                           AllOf(HasSubstr("rank 0 of 2 in group \""),
                                 HasSubstr("all-gather of the root")));
             }
             WaitForAllRanks();
           },
           {.deadline = kBound});
}

TEST(Failure, ARankThatNeverComes) {
  RunRanks(2,
           [] {
             if (std::getenv("RANK")[0] == '0') {
               EXPECT_THAT(
                   ThrownMessage([] { StartRank({.timeout = kTimeout}); }),
                   HasSubstr("rank 0 of 2"));
             }
             WaitForAllRanks();
           },
           {.deadline = kBound});
}

// ---- Ends ------------------------------------------------------------------

TEST(Lifetime, OptimizerOutputsAndHandlesOutliveTheModel) {
  RunRanks(2, [] {
    StartRank();
    std::optional<TinyModel> model = MakeSharded();
    auto optimizer = std::make_unique<torch::optim::Adam>(
        (*model)->parameters(), torch::optim::AdamOptions(1e-2));
    TinyLoss(*model, Mine(0)).backward();
    FSDPModule handle = get_fsdp_module(**model);
    FSDPModule block = get_fsdp_module(*(*model)->blocks[0]);
    const Tensor loss = TinyLoss(*model, Mine(1));
    model.reset();
    // The optimizer holds the shards, which hold the engine's state.
    optimizer->step();
    EXPECT_EQ(block.name(), "blocks.0");
    loss.backward();
    optimizer->step();
    block.unshard();
    EXPECT_TRUE(block.is_unsharded());
    block.reshard();
    optimizer.reset();
    EXPECT_TRUE(handle.is_root());
    EXPECT_EQ(handle.name(), "");
    handle.set_requires_gradient_sync(false);
    handle.reshard();
  });
}

TEST(Lifetime, AGraphWhoseModelIsGoneIsAnError) {
  RunRanks(2, [] {
    StartRank();
    Tensor loss;
    {
      TinyModel model = MakeSharded();
      loss = TinyLoss(model, Mine(0));
    }
    EXPECT_THAT(ThrownMessage([&] { loss.backward(); }),
                HasSubstr("is used after its module was destroyed"));
    // The layer survives, but the rest of the group does not.
    torch::nn::Linear layer{nullptr};
    {
      TinyModel model = MakeSharded();
      layer = model->head;
    }
    const Tensor x = torch::ones({2, kSmall.dim});
    EXPECT_THAT(ThrownMessage([&] { layer(x); }),
                HasSubstr("was removed from its module"));
    Pair().ExpectStepsAreRight();
  });
}

TEST(Lifetime, ModelsGoInAnyOrderAndInTheMiddleOfAStep) {
  RunRanks(2, [] {
    StartRank();
    Pair survivor;
    for (int i = 0; i < 3; ++i) {
      TinyModel model = MakeSharded();
      TinyModel other = MakeSharded();
      share_comm_ctx({get_fsdp_module(*model), get_fsdp_module(*other)});
      const Tensor loss = TinyLoss(model, Mine(0));
      TinyLoss(other, Mine(1)).backward();
      if (i == 0) other = TinyModel(nullptr);
      if (i == 1) {
        // With a gather under way.
        get_fsdp_module(*model->blocks[1]).unshard(/*async=*/true);
        model = TinyModel(nullptr);
      }
      if (i == 2) loss.backward();
    }
    {
      // A block that is removed from the model.
      TinyModel model = MakeSharded();
      std::shared_ptr<torch::nn::Module> block = model->blocks[1];
      model = TinyModel(nullptr);
      const Tensor x = torch::ones({1, kSmall.length, kSmall.dim});
      block->as<Block>()->forward(x).sum().backward();
      EXPECT_TRUE(block->parameters()[0].grad().defined());
    }
    survivor.ExpectStepsAreRight();
  });
}

TEST(Lifetime, AProcessExitsWithALiveModel) {
  const std::vector<std::string> reports =
      RunRanks(2,
               [] {
                 // Handlers run in reverse order: this one runs after the
                 // destructors of later statics.
                 std::atexit([] { Report("exited"); });
                 StartRank();
                 static TinyModel model = MakeSharded();
                 static Tensor loss = TinyLoss(model, Mine(0));
                 static torch::optim::Adam optimizer(
                     model->parameters(), torch::optim::AdamOptions(1e-2));
                 loss.backward();
                 optimizer.step();
                 loss = TinyLoss(model, Mine(1));
                 WaitForAllRanks();
                 std::exit(0);
               },
               {.deadline = kBound, .may_die = {0, 1}});
  EXPECT_THAT(reports, Each("exited"));
}

}  // namespace
}  // namespace fsdp::testing
