// SPDX-License-Identifier: Apache-2.0
// The engine promises C++ users: a member, the registry and an old handle all
// reach the same parameter, or an error. Tests every way to reach one, in every
// phase, against the same module without fully_shard; in float64, so that
// rounding hides nothing. For changes to the shards see
// changes_of_shards_test.cc.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c10/util/Exception.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/reader_pair.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/nn.h"
#include "torch/nn/utils/clip_grad.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/sgd.h"
#include "torch/serialize.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::Tensor;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Module;

// ---- Operators that take parameters of several groups ----------------------

TEST(SeveralGroups, AreGatheredForOneOperator) {
  RunRanks(3, [] {
    StartRankInDouble();
    using Run = std::function<Tensor(PairImpl&, const Tensor&)>;
    const std::vector<Run> runs = {
        [](PairImpl& m, const Tensor& x) {
          return torch::addmm(m.b->bias, x, m.a->weight);
        },
        [](PairImpl& m, const Tensor& x) {
          const Tensor h = torch::addmm(m.a->bias, x, m.b->weight);
          return torch::addmm(m.b->bias, h, m.a->weight);
        },
        [](PairImpl& m, const Tensor& x) {
          return torch::linear(x, m.a->weight, m.b->bias) *
                 torch::cat({x, m.b->weight, m.a->weight}).sum();
        },
    };
    for (const bool reshard : {true, false}) {
      for (const Run& run : runs) {
        Both both = MakeBoth({.reshard_after_forward = reshard});
        for (int step = 0; step < 2; ++step) {
          const Tensor got = run(*both.model, Input());
          const Tensor want = run(*both.reference, Input());
          EXPECT_TRUE(Close(got.detach(), want.detach()));
          got.square().sum().backward();
          want.square().sum().backward();
          ExpectSameGradients(*both.model, *both.reference);
        }
        EXPECT_EQ(step_report(*both.model).unsharded_bytes, 0U);
      }
    }
  });
}

// ---- Freezing and unfreezing ------------------------------------------------

TEST(Freezing, ByMemberOrByRegistryIsSeenByTheNextForward) {
  RunRanks(2, [] {
    StartRankInDouble();
    torch::manual_seed(3);
    Linear reference(6, 6);
    torch::manual_seed(3);
    Linear model(6, 6);
    fully_shard(model);
    const auto freeze = [](Linear& linear, bool by_member, bool frozen) {
      if (by_member) {
        linear->weight.set_requires_grad(!frozen);
        return;
      }
      for (Tensor& p : linear->parameters()) p.set_requires_grad(!frozen);
    };
    for (const bool by_member : {true, false}) {
      for (const bool evaluates : {false, true}) {
        for (const bool frozen : {true, false}) {
          for (Linear* linear : {&model, &reference}) {
            if (evaluates) {
              const torch::NoGradGuard no_grad;
              (*linear)(Input());
            }
            freeze(*linear, by_member, frozen);
            for (Tensor& p : (*linear)->parameters()) {
              p.mutable_grad() = Tensor();
            }
            const Tensor x = Input().set_requires_grad(true);
            (*linear)(x).square().sum().backward();
          }
          ExpectSameGradients(*model, *reference);
          EXPECT_EQ(model->weight.requires_grad(), !frozen);
          EXPECT_EQ(model->parameters()[0].requires_grad(), !frozen);
        }
      }
    }
  });
}

// ---- Forwards that read the registry ----------------------------------------

// How forward reaches the parameters.
enum class Way { kNamed, kAll, kList };

struct RegistryImpl : Module {
  explicit RegistryImpl(Way way_)
      : way(way_), list(register_module("list", torch::nn::ParameterList())) {
    register_parameter("weight", torch::randn({6, 6}));
    register_parameter("scale", torch::randn({6}));
    list->append(torch::randn({6, 6}).set_requires_grad(true));
    list->append(torch::randn({6}).set_requires_grad(true));
  }
  Tensor forward(const Tensor& x) {
    if (way == Way::kNamed) {
      const auto own = named_parameters();
      return torch::linear(x, own["weight"]) * own["scale"];
    }
    if (way == Way::kAll) {
      const auto own = parameters();
      return x.matmul(own[0]) * own[1];
    }
    return x.matmul(list[0]) * list[1];
  }
  Way way;
  torch::nn::ParameterList list;
};

TEST(Registry, ParametersThatAForwardReadsThereAreWhole) {
  RunRanks(3, [] {
    StartRankInDouble();
    for (const Way way : {Way::kNamed, Way::kAll, Way::kList}) {
      torch::manual_seed(5);
      auto reference = std::make_shared<RegistryImpl>(way);
      torch::manual_seed(5);
      auto model = std::make_shared<RegistryImpl>(way);
      fully_shard(model);
      for (int step = 0; step < 2; ++step) {
        {
          const torch::NoGradGuard no_grad;
          EXPECT_TRUE(
              Close(model->forward(Input()), reference->forward(Input())));
        }
        const Tensor got = model->forward(Input());
        const Tensor want = reference->forward(Input());
        EXPECT_TRUE(Close(got.detach(), want.detach()));
        got.square().sum().backward();
        want.square().sum().backward();
        ExpectSameGradients(*model, *reference);
        const torch::NoGradGuard no_grad;
        for (Module* module :
             {(Module*)model.get(), (Module*)reference.get()}) {
          for (Tensor& p : module->parameters()) p.mul_(0.9);
        }
      }
    }
  });
}

TEST(Registry, WhatWouldReadAPartInSilenceIsRefused) {
  RunRanks(2, [] {
    StartRankInDouble();
    auto model = std::make_shared<RegistryImpl>(Way::kNamed);
    fully_shard(model);
    const Tensor x = Input();
    const Tensor weight = model->named_parameters()["weight"];
    // A view of the shard cannot become one of the parameter.
    EXPECT_THAT(ThrownMessage([&] { x.matmul(weight.t()); }),
                AllOf(HasSubstr("view of this rank's part"),
                      HasSubstr("ForwardScope"), HasSubstr("ShardScope")));
    // A loss from this rank's part of the weight.
    EXPECT_THAT(ThrownMessage([&] { weight.square().sum().backward(); }),
                AllOf(HasSubstr("a gradient arrives at this rank's shard"),
                      HasSubstr("'weight'"), HasSubstr("ForwardScope")));
    {
      // Only a container shows whether a forward reads it.
      const torch::NoGradGuard no_grad;
      EXPECT_THAT(ThrownMessage([&] { model->list[0].sum(); }),
                  AllOf(HasSubstr("'list.0'"), HasSubstr("ForwardScope"),
                        HasSubstr("ShardScope")));
      EXPECT_EQ(model->list[0].clone().size(0), 3);
      const ShardScope shards;
      EXPECT_EQ(model->list[0].tanh().size(0), 3);
      EXPECT_EQ((weight.t() * torch::ones({1})).size(1), 3);
    }
    const ForwardScope forward;
    EXPECT_EQ(x.matmul(weight.t()).size(1), 6);
    Tensor penalty = torch::zeros({});
    for (const Tensor& p : model->parameters()) penalty = penalty + p.norm();
    penalty.backward();
    EXPECT_EQ(dtensor_of(weight)->grad()->full_tensor().size(0), 6);
  });
}

class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    texts.push_back(warning.msg());
  }
  std::vector<std::string> texts;
};

// Nothing tells a norm in a forward that records no gradients from a look at
// this rank's part.
TEST(Registry, AComputationWithAPartAloneWarnsOnce) {
  for (const int ranks : {1, 2}) {
    RunRanks(ranks, [ranks] {
      StartRankInDouble();
      Both both = MakeBoth();
      Warnings told;
      const c10::WarningUtils::WarningHandlerGuard guard(&told);
      torch::optim::AdamW optimizer(both.model->parameters());
      both.model->forward(Input()).sum().backward();
      optimizer.step();
      const torch::NoGradGuard no_grad;
      const Tensor shard = both.model->parameters()[0];
      {
        const ShardScope scope;
        shard.norm();
      }
      shard.clone().add(shard).sum();
      shard.new_zeros({2}).copy_(shard.flatten().slice(0, 0, 2));
      parameters(*both.model)[0].norm();
      EXPECT_TRUE(told.texts.empty()) << told.texts.front();
      shard.square().sum();
      shard.detach().norm();
      if (ranks == 1) {
        EXPECT_TRUE(told.texts.empty()) << told.texts.front();
        return;
      }
      ASSERT_EQ(told.texts.size(), 1u);
      EXPECT_THAT(told.texts[0],
                  AllOf(HasSubstr("aten::square computes only with this rank's "
                                  "part of 'a.weight'"),
                        HasSubstr("ForwardScope"), HasSubstr("ShardScope")));
    });
  }
}

TEST(Registry, RecurrentModulesReadItAfterTo) {
  RunRanks(3, [] {
    StartRankInDouble();
    const auto check = [](auto reference, auto model) {
      fully_shard(model);
      for (auto* module : {&model, &reference}) (*module)->to(torch::kDouble);
      for (int step = 0; step < 2; ++step) {
        const Tensor x =
            torch::linspace(-1, 1, 60, torch::kDouble).view({4, 3, 5});
        {
          const torch::NoGradGuard no_grad;
          EXPECT_TRUE(Close(std::get<0>(model(x)), std::get<0>(reference(x))));
        }
        const Tensor got = std::get<0>(model(x));
        const Tensor want = std::get<0>(reference(x));
        EXPECT_TRUE(Close(got.detach(), want.detach()));
        got.square().sum().backward();
        want.square().sum().backward();
        ExpectSameGradients(*model, *reference);
        // In place: to() without a change gives the same tensors again.
        for (auto* module : {&model, &reference}) (*module)->to(torch::kDouble);
      }
    };
    torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
    torch::manual_seed(1);
    torch::nn::LSTM lstm_reference(5, 7);
    torch::nn::GRU gru_reference(5, 7);
    torch::manual_seed(1);
    torch::nn::LSTM lstm(5, 7);
    torch::nn::GRU gru(5, 7);
    check(lstm_reference, lstm);
    check(gru_reference, gru);
  });
}

// ---- Optimizers and gradients of members ------------------------------------

TEST(Members, HaveNoGradientsToStepOrRead) {
  RunRanks(2, [] {
    StartRankInDouble();
    for (const bool evaluates : {false, true}) {
      Linear model(6, 6);
      // The members, taken before the module was sharded.
      const std::vector<Tensor> members = {model->weight, model->bias};
      fully_shard(model);
      torch::optim::SGD sgd(members, 0.1);
      torch::optim::Adam adam(members, 0.1);
      model(Input()).square().sum().backward();
      EXPECT_TRUE(model->weight.grad().defined());
      EXPECT_EQ(model->weight.grad().sizes(), model->weight.sizes());
      if (evaluates) {
        const torch::NoGradGuard no_grad;
        model(Input());
      }
      const auto says = AllOf(HasSubstr("'weight'"), HasSubstr("module->"),
                              HasSubstr("parameters()"));
      EXPECT_THAT(ThrownMessage([&] { sgd.step(); }), says);
      EXPECT_THAT(ThrownMessage([&] { adam.step(); }), says);
      EXPECT_THAT(ThrownMessage([&] { model->weight.grad().norm(); }),
                  AllOf(says, HasSubstr("full_tensor()")));
      EXPECT_THAT(ThrownMessage(
                      [&] { torch::nn::utils::clip_grad_norm_(members, 1.0); }),
                  says);
      // Each backward adds to the existing gradient.
      const Tensor y = model(Input());
      y.sum().backward({}, /*retain_graph=*/true);
      y.sum().backward();
      sgd.zero_grad();
      EXPECT_FALSE(model->weight.grad().defined());
      model(Input()).sum().backward();
      const Tensor ones = torch::ones({3, 6});
      Tensor want = ones.t().matmul(Input()) * 3;
      want += (2 * model(Input())).detach().t().matmul(Input());
      EXPECT_TRUE(
          Close(dtensor_of(model->weight)->grad()->full_tensor(), want));
    }
  });
}

TEST(Members, RawPointersIntoThemSayWhatToDo) {
  RunRanks(2, [] {
    StartRankInDouble();
    Linear model(6, 6);
    FSDPModule handle = fully_shard(model);
    const auto says = AllOf(HasSubstr("Gather it first"), HasSubstr("unshard"));
    EXPECT_THAT(ThrownMessage([&] { model->weight.data_ptr<double>(); }), says);
    EXPECT_THAT(ThrownMessage([&] { model->weight.data_ptr(); }), says);
    handle.unshard();
    EXPECT_NE(model->weight.data_ptr<double>(), nullptr);
    handle.reshard();
    EXPECT_THAT(ThrownMessage([&] { model->weight.const_data_ptr(); }), says);
    EXPECT_EQ(model(Input()).size(0), 3);
  });
}

// ---- Every way in every phase -----------------------------------------------

// Calls `call` in backward, while the engine is in the middle of backward.
struct InBackward : torch::autograd::Function<InBackward> {
  struct Held : torch::CustomClassHolder {
    std::function<void()> call;
  };
  static Tensor forward(torch::autograd::AutogradContext* context,
                        const Tensor& x, const std::function<void()>& call) {
    auto held = c10::make_intrusive<Held>();
    held->call = call;
    context->saved_data["call"] = c10::IValue::make_capsule(held);
    return x.clone();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::variable_list grads) {
    c10::static_intrusive_pointer_cast<Held>(
        context->saved_data["call"].toCapsule())
        ->call();
    return {grads[0], Tensor()};
  }
};

void ExpectAllWaysAreTheParameter(const std::string& phase, Pair& model,
                                  const Tensor& handle, const Tensor& view,
                                  const Tensor& want) {
  SCOPED_TRACE(phase);
  const torch::NoGradGuard no_grad;
  const Tensor x = Input();
  const std::vector<std::pair<std::string, std::function<Tensor()>>> ways = {
      {"member", [&] { return x.matmul(model->a->weight); }},
      {"view of the member",
       [&] { return x.matmul(model->a->weight.t().t()); }},
      {"old handle", [&] { return x.matmul(handle); }},
      {"old view", [&] { return x.matmul(view.t()); }},
      {"detached member", [&] { return x.matmul(model->a->weight.detach()); }},
      {"data() of the member",
       [&] { return x.matmul(model->a->weight.data()); }},
      {"named_parameters()",
       [&] { return x.matmul(model->named_parameters()["a.weight"]); }},
      {"parameters()", [&] { return x.matmul(model->a->parameters()[0]); }},
      {"registry",
       [&] { return x.matmul(ParameterRegistry(*model->a)["weight"]); }},
      {"DTensor",
       [&] { return x.matmul(dtensor_of(model->a->weight)->full_tensor()); }}};
  for (const auto& [name, way] : ways) EXPECT_TRUE(Close(way(), want)) << name;
}

TEST(Phases, EveryWayIsTheSameParameterInEach) {
  RunRanks(2, [] {
    StartRankInDouble();
    for (const bool reshard : {true, false}) {
      torch::manual_seed(7);
      Pair model;
      const Tensor handle = model->a->weight;
      const Tensor view = model->a->weight.t();
      Tensor want = Input().matmul(handle.detach().clone());
      fully_shard(model->a, {.reshard_after_forward = reshard});
      fully_shard(model->b, {.reshard_after_forward = reshard});
      fully_shard(model, {.reshard_after_forward = reshard});
      const auto check = [&](const std::string& phase) {
        ExpectAllWaysAreTheParameter(phase, model, handle, view, want);
      };
      check("sharded");
      get_fsdp_module(*model->a).unshard();
      check("gathered by hand");
      get_fsdp_module(*model->a).reshard();
      const Tensor h = model->forward(Input());
      check("after forward");
      InBackward::apply(h, std::function<void()>([&] { check("in backward"); }))
          .sum()
          .backward();
      check("after backward");
      {
        const torch::NoGradGuard no_grad;
        model->forward(Input());
      }
      check("after evaluation");
      const std::string file =
          SharedDir() + "/rank" + std::to_string(get_rank()) + ".pt";
      torch::save(model, file);
      {
        const torch::NoGradGuard no_grad;
        for (Tensor& p : model->parameters()) p.zero_();
      }
      torch::load(model, file);
      check("after load");
    }
  });
}

// ---- What is registered or passed in unusual ways ---------------------------

TEST(Ties, CountOnceForClipping) {
  RunRanks(2, [] {
    StartRankInDouble();
    torch::nn::Sequential model(Linear(LinearOptions(6, 6).bias(false)),
                                Linear(LinearOptions(6, 6).bias(false)));
    auto& first = *model[0]->as<Linear>();
    auto& second = *model[1]->as<Linear>();
    second.weight = first.weight;
    ParameterRegistry(second)["weight"] = first.weight;
    fully_shard(model);
    model->forward(Input()).square().sum().backward();
    const Tensor want = dtensor_of(first.weight)->grad()->full_tensor().clone();
    ASSERT_EQ(model->parameters().size(), 2U);
    EXPECT_NEAR(clip_grad_norm_(parameters(*model), 1.0).item<double>(),
                want.norm().item<double>(), 1e-9);
    const Tensor clipped = dtensor_of(first.weight)->grad()->full_tensor();
    EXPECT_TRUE(Close(clipped, want / (want.norm() + 1e-6)));
    EXPECT_NEAR(clip_grad_norm_(model->parameters(), 0.5).item<double>(), 1,
                1e-6);
  });
}

TEST(FullyShardArguments, HoldersInBracesAndModulesOnTheStack) {
  StartRankInDouble();
  Linear a(4, 4);
  auto b = std::make_shared<ReaderImpl>(4);
  torch::nn::Sequential model(a, Linear(4, 4));
  model->register_module("b", b);
  EXPECT_EQ(fully_shard({a, b}).name(), ", ");
  fully_shard(*model);
  EXPECT_FALSE(find_fsdp_module(*a)->is_root());
  EXPECT_THAT(ThrownMessage([] {
                ReaderImpl on_the_stack(4);
                fully_shard(on_the_stack);
              }),
              AllOf(HasSubstr("std::make_shared"), HasSubstr("ReaderImpl")));
}

}  // namespace
}  // namespace fsdp::testing
