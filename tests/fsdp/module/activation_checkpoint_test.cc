// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/activation_checkpoint.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/autocast_mode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/dropout.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/modules/rnn.h"
#include "torch/torch.h"

namespace fsdp {
namespace {

using at::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Tensors = std::vector<Tensor>;

// Counts how often forward ran.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t size, double dropout = 0.0)
      : in(register_module("in", torch::nn::Linear(size, 2 * size))),
        out(register_module("out", torch::nn::Linear(2 * size, size))),
        drop(register_module("drop", torch::nn::Dropout(dropout))) {}
  Tensor forward(Tensor x) {
    ++num_runs;
    return x + out(drop(torch::relu(in(x))));
  }
  torch::nn::Linear in, out;
  torch::nn::Dropout drop;
  int num_runs = 0;
};
TORCH_MODULE(Block);

Tensors CollectGrads(const torch::nn::Module& module) {
  Tensors grads;
  for (const Tensor& parameter : module.parameters()) {
    grads.push_back(parameter.grad().defined() ? parameter.grad().clone()
                                               : Tensor());
  }
  return grads;
}

void ExpectSame(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    EXPECT_TRUE(!a[i].defined() || torch::equal(a[i], b[i])) << i;
  }
}

// The gradients in `module` after a backward from the sum of run(), from a
// fixed seed.
Tensors GradsFrom(torch::nn::Module& module,
                  const std::function<Tensor()>& run) {
  torch::manual_seed(7);
  module.zero_grad();
  run().square().sum().backward();
  return CollectGrads(module);
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() { torch::manual_seed(1); }
};

TEST_F(CheckpointTest, GradientsMatchThePlainCall) {
  Block block(4);
  Tensor x = torch::randn({3, 4}, torch::requires_grad());
  const Tensors want = GradsFrom(*block, [&] { return block(x); });
  const Tensor want_x = x.grad().clone();
  x.mutable_grad().reset();
  block->num_runs = 0;
  const Tensors got = GradsFrom(*block, [&] {
    return checkpoint([&](Tensor t) { return block(t); }, x);
  });
  ExpectSame(got, want);
  EXPECT_TRUE(torch::equal(x.grad(), want_x));
  EXPECT_EQ(block->num_runs, 2);
}

TEST_F(CheckpointTest, ParametersGetGradientsIfNoInputRequiresGrad) {
  Block block(4);
  const Tensor x = torch::randn({3, 4});
  const Tensors want = GradsFrom(*block, [&] { return block(x); });
  ExpectSame(
      GradsFrom(
          *block,
          [&] { return checkpoint([&](Tensor t) { return block(t); }, x); }),
      want);
}

TEST_F(CheckpointTest, AcceptsNothingToDifferentiate) {
  const Tensor weight = torch::ones({2}, torch::requires_grad());
  const Tensor y = checkpoint([](Tensor t) { return t * 2; }, torch::ones({2}));
  (y * weight).sum().backward();
  EXPECT_TRUE(torch::equal(weight.grad(), torch::full({2}, 2.0)));
}

TEST_F(CheckpointTest, WithoutGradModeItIsAPlainCall) {
  Block block(4);
  at::NoGradGuard no_grad;
  const Tensor y =
      checkpoint([&](Tensor t) { return block(t); }, torch::ones({2, 4}));
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(block->num_runs, 1);
}

TEST_F(CheckpointTest, DropoutDrawsTheSameNumbersAgain) {
  Block block(16, 0.5);
  const Tensor x = torch::randn({8, 16});
  const Tensors want = GradsFrom(*block, [&] { return block(x); });
  const Tensor next = torch::rand({3});
  ExpectSame(
      GradsFrom(
          *block,
          [&] { return checkpoint([&](Tensor t) { return block(t); }, x); }),
      want);
  EXPECT_TRUE(torch::equal(torch::rand({3}), next))
      << "backward moved the generator";
}

TEST_F(CheckpointTest, SeveralTensorsUndefinedAndIntegerOnes) {
  const Tensor a = torch::randn({3}, torch::requires_grad());
  const Tensor index = torch::tensor({2, 0, 1});
  const Tensors out = checkpoint_tensors(
      [](const Tensors& in) -> Tensors {
        EXPECT_FALSE(in[1].defined());
        const Tensor picked = in[0].index_select(0, in[2]);
        return {Tensor(), picked * 3, in[2] + 1, in[0].detach(), Tensor()};
      },
      {a, Tensor(), index});
  ASSERT_EQ(out.size(), 5);
  EXPECT_FALSE(out[0].defined());
  EXPECT_TRUE(out[1].requires_grad());
  EXPECT_FALSE(out[2].requires_grad());
  EXPECT_TRUE(torch::equal(out[2], index + 1));
  EXPECT_FALSE(out[4].defined());
  (out[1] * torch::tensor({1.0, 10.0, 100.0})).sum().backward();
  EXPECT_TRUE(torch::equal(a.grad(), torch::tensor({30.0, 300.0, 3.0})));
}

TEST_F(CheckpointTest, AnInputMayBeReturnedAndUsedTwice) {
  const Tensor a = torch::ones({2}, torch::requires_grad());
  const auto [same, twice] =
      checkpoint([](Tensor t) { return std::make_tuple(t, t + t); }, a * 1);
  (same + twice).sum().backward();
  EXPECT_TRUE(torch::equal(a.grad(), torch::full({2}, 3.0)));
}

TEST_F(CheckpointTest, AnyArgumentsAndResults) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2));
  const Tensor x = torch::randn({5, 2, 3});
  using State = std::tuple<Tensor, Tensor>;
  const std::optional<State> state =
      State(torch::randn({2, 2, 4}), torch::randn({2, 2, 4}));
  const auto run = [&](Tensor t, std::optional<State> s) { return lstm(t, s); };
  const auto sum = [](const std::tuple<Tensor, State>& out) {
    const auto& [y, last] = out;
    return y.sum() + std::get<0>(last).sum() * 2 + std::get<1>(last).sum();
  };
  // Without grad mode torch takes another kernel, which rounds differently.
  const Tensors want = GradsFrom(*lstm, [&] { return sum(run(x, state)); });
  const Tensors got =
      GradsFrom(*lstm, [&] { return sum(checkpoint(run, x, state)); });
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(torch::allclose(got[i], want[i], 1e-4, 1e-5)) << i;
  }

  const Tensor scaled = checkpoint(
      [](Tensor t, double by, bool twice) { return t * by * (twice ? 2 : 1); },
      torch::ones({1}), 1.5, true);
  EXPECT_EQ(scaled.item<float>(), 3);
}

TEST_F(CheckpointTest, MayBeNested) {
  Block outer(4), inner(4);
  torch::nn::Sequential both(outer, inner);
  const Tensor x = torch::randn({3, 4});
  const Tensors want = GradsFrom(*both, [&] { return inner(outer(x)); });
  inner->num_runs = outer->num_runs = 0;
  const auto run_inner = [&](Tensor t) { return inner(t); };
  ExpectSame(
      GradsFrom(*both,
                [&] {
                  return checkpoint(
                      [&](Tensor t) { return checkpoint(run_inner, outer(t)); },
                      x);
                }),
      want);
  EXPECT_EQ(outer->num_runs, 2);
  EXPECT_EQ(inner->num_runs, 3);
}

TEST_F(CheckpointTest, BackwardTwiceWithRetainGraph) {
  Block block(4);
  const Tensor x = torch::randn({3, 4});
  const Tensor loss = checkpoint([&](Tensor t) { return block(t); }, x).sum();
  loss.backward({}, /*retain_graph=*/true);
  const Tensors once = CollectGrads(*block);
  loss.backward();
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_TRUE(torch::allclose(CollectGrads(*block)[i], once[i] * 2));
  }
}

TEST_F(CheckpointTest, TheSecondRunUsesTheFirstRunsAutocast) {
  torch::nn::Linear linear(4, 4);
  std::vector<at::ScalarType> dtypes;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const Tensor y = checkpoint(
      [&](Tensor t) {
        const Tensor out = linear(t);
        dtypes.push_back(out.scalar_type());
        return out;
      },
      torch::ones({2, 4}));
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  y.to(at::kFloat).sum().backward();
  EXPECT_THAT(dtypes, ElementsAre(at::kBFloat16, at::kBFloat16));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_TRUE(linear->weight.grad().defined());
}

TEST_F(CheckpointTest, AFailureRestoresModesAndRandomState) {
  bool fail = true;
  const auto run = [&](Tensor t) {
    const Tensor noise = torch::rand_like(t);
    TORCH_CHECK(!fail, "no luck");
    return t * noise;
  };
  const Tensor x = torch::ones({2}, torch::requires_grad());
  EXPECT_THROW(checkpoint(run, x), c10::Error);
  EXPECT_TRUE(at::GradMode::is_enabled());

  fail = false;
  const Tensor y = checkpoint(run, x);
  fail = true;
  torch::manual_seed(3);
  const Tensor want = torch::rand({2});
  torch::manual_seed(3);
  EXPECT_THROW(y.sum().backward({}, /*retain_graph=*/true), c10::Error);
  EXPECT_TRUE(torch::equal(torch::rand({2}), want));
  EXPECT_TRUE(at::GradMode::is_enabled());
  fail = false;
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), y.detach()));
}

TEST_F(CheckpointTest, RefusesBackwardsThatItCannotSupport) {
  const Tensor x = torch::ones({2}, torch::requires_grad());
  const auto run = [](Tensor t) { return t * t; };
  EXPECT_THAT([&] { torch::autograd::grad({checkpoint(run, x).sum()}, {x}); },
              ThrowsMessage<c10::Error>(HasSubstr("torch::autograd::grad")));
  EXPECT_THAT(
      [&] {
        checkpoint(run, x).sum().backward({}, std::nullopt,
                                          /*create_graph=*/true);
      },
      ThrowsMessage<c10::NotImplementedError>(HasSubstr("create_graph")));
  int runs = 0;
  const auto fickle = [&](const Tensors& in) {
    return ++runs == 1 ? Tensors{in[0] * 1} : Tensors{in[0] * 1, in[0] * 2};
  };
  EXPECT_THAT([&] { checkpoint_tensors(fickle, {x})[0].sum().backward(); },
              ThrowsMessage<c10::Error>(HasSubstr("1 defined tensors of 1")));
  EXPECT_THROW(checkpoint_tensors(nullptr, {x}), c10::ValueError);
}

// Forward keeps only the input alive, nothing in between.
TEST_F(CheckpointTest, ActivationsAreNotKept) {
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> inside;
  const auto run = [&](Tensor t) {
    const Tensor hidden = t * 2;
    inside.emplace_back(hidden.getIntrusivePtr());
    return (hidden * hidden).sum();
  };
  const Tensor x = torch::ones({2}, torch::requires_grad());
  const Tensor y = checkpoint(run, x);
  ASSERT_EQ(inside.size(), 1);
  EXPECT_TRUE(inside[0].expired());
  y.backward();
  EXPECT_TRUE(inside.back().expired());
}

// ---- Modules ----

bool IsBlock(const torch::nn::Module& module) {
  return module.as<BlockImpl>() != nullptr;
}
bool Nothing(const torch::nn::Module& /*module*/) { return false; }

struct ModelImpl : torch::nn::Module {
  ModelImpl() {
    register_module("first", first.ptr());
    register_module("list", list);
    for (int i = 0; i < 2; ++i) {
      list->push_back(Checkpointed<BlockImpl>(4).ptr());
    }
    register_module("tail", tail);
  }
  Tensor forward(Tensor x) {
    x = first(x);
    for (const auto& layer : *list) {
      x = Checkpointed<BlockImpl>(std::dynamic_pointer_cast<BlockImpl>(layer))(
          x);
    }
    return tail->forward(x);
  }
  Checkpointed<BlockImpl> first{4};
  torch::nn::ModuleList list;
  torch::nn::Sequential tail{Block(4), torch::nn::ReLU(), Block(4)};
};
TORCH_MODULE(Model);

std::vector<int> Runs(const torch::nn::Module& module) {
  std::vector<int> runs;
  for (const auto& below : module.modules()) {
    if (auto* block = below->as<BlockImpl>()) {
      runs.push_back(std::exchange(block->num_runs, 0));
    }
  }
  return runs;
}

TEST_F(CheckpointTest, PredicateSwitchesHoldersAndChildrenOfSequentials) {
  Model model;
  const std::vector<std::string> names = model->named_parameters().keys();
  const Tensor x = torch::randn({3, 4});
  const auto step = [&] { return GradsFrom(*model, [&] { return model(x); }); };
  const Tensors want = step();
  EXPECT_THAT(Runs(*model), ElementsAre(2, 2, 2, 1, 1)) << "as built";

  apply_activation_checkpointing(*model, IsBlock);
  ExpectSame(step(), want);
  EXPECT_THAT(Runs(*model), ElementsAre(2, 2, 2, 2, 2));
  apply_activation_checkpointing(*model, IsBlock);  // changes nothing
  ExpectSame(step(), want);
  EXPECT_THAT(Runs(*model), ElementsAre(2, 2, 2, 2, 2));
  EXPECT_EQ(model->named_parameters().keys(), names);
  EXPECT_NE(model->tail[0]->as<BlockImpl>(), nullptr);
  EXPECT_THROW(model->tail->at<BlockImpl>(0), c10::Error);

  const torch::nn::Module* last = model->tail->ptr(2).get();
  apply_activation_checkpointing(
      *model, [&](const torch::nn::Module& m) { return &m == last; });
  ExpectSame(step(), want);
  EXPECT_THAT(Runs(*model), ElementsAre(1, 1, 1, 1, 2));

  apply_activation_checkpointing(*model, Nothing);
  ExpectSame(step(), want);
  EXPECT_THAT(Runs(*model), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_EQ(model->tail->at<BlockImpl>(0).in->weight.size(0), 8);
}

TEST_F(CheckpointTest, RefusesAModuleWithCallsThatCannotBeIntercepted) {
  Model model;
  apply_activation_checkpointing(*model, Nothing);
  EXPECT_THAT(
      [&] {
        apply_activation_checkpointing(
            *model, [](const torch::nn::Module& module) {
              return IsBlock(module) ||
                     module.as<torch::nn::LinearImpl>() != nullptr;
            });
      },
      ThrowsMessage<c10::ValueError>(AllOf(HasSubstr("'first.in'"),
                                           HasSubstr("LinearImpl"),
                                           HasSubstr("fsdp::Checkpointed"))));
  model(torch::ones({1, 4})).sum().backward();
  EXPECT_THAT(Runs(*model), ElementsAre(1, 1, 1, 1, 1)) << "nothing changed";
}

TEST_F(CheckpointTest, TheRootIsNotAsked) {
  torch::nn::Sequential model(torch::nn::Linear(2, 2));
  int asked = 0;
  apply_activation_checkpointing(*model, [&](const torch::nn::Module& module) {
    EXPECT_NE(&module, model.get());
    ++asked;
    return true;
  });
  EXPECT_EQ(asked, 1);
}

TEST_F(CheckpointTest, RefusesAChildThatReturnsNoTensor) {
  torch::nn::Sequential model(torch::nn::LSTM(3, 4));
  apply_activation_checkpointing(*model,
                                 [](const auto& /*module*/) { return true; });
  const Tensor x = torch::ones({1, 1, 3});
  EXPECT_THAT([&] { model->forward(x); },
              ThrowsMessage<c10::TypeError>(
                  AllOf(HasSubstr("LSTM"), HasSubstr("only a Tensor"))));
}

TEST_F(CheckpointTest, ADestroyedModuleLeavesNoSwitch) {
  for (int i = 0; i < 200; ++i) {
    Checkpointed<BlockImpl> block(2);
    EXPECT_TRUE(is_checkpointed(*block));
    Block plain(2);
    EXPECT_FALSE(is_checkpointed(*plain));
  }
}

}  // namespace
}  // namespace fsdp
