// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/init.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/init_defaults.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module/init_zoo.h"
#include "tests/testing/ranks.h"
#include "torch/torch.h"

namespace fsdp::testing {
namespace {

using at::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

void FillWithNan(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : module.parameters()) parameter.fill_(NAN);
  for (const auto& buffer : module.buffers()) buffer.fill_(77);
}

TEST(Init, MomentsAndBoundsOfTheDistributions) {
  const Tensor t = torch::empty({1000, 300}, torch::kDouble);
  init::uniform_(t, -1, 3, 5);
  EXPECT_GE(t.min().item<double>(), -1);
  EXPECT_LT(t.max().item<double>(), 3);
  EXPECT_NEAR(t.mean().item<double>(), 1, 0.01);
  EXPECT_NEAR(t.std().item<double>(), 4 / std::sqrt(12.0), 0.01);

  init::normal_(t, 2, 0.5, 5);
  EXPECT_NEAR(t.mean().item<double>(), 2, 0.005);
  EXPECT_NEAR(t.std().item<double>(), 0.5, 0.005);
  const Tensor z = (t - 2) / 0.5;
  EXPECT_NEAR(z.pow(3).mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(z.pow(4).mean().item<double>(), 3, 0.1);
  // Neighbouring numbers, which Box and Muller's method makes in pairs, and
  // rows.
  const Tensor flat = z.flatten();
  EXPECT_NEAR((flat.slice(0, 0, 300'000, 2) * flat.slice(0, 1, 300'000, 2))
                  .mean()
                  .item<double>(),
              0, 0.01);
  EXPECT_NEAR((z[0] * z[1]).mean().item<double>(), 0, 0.25);

  init::trunc_normal_(t, 0, 1, -2, 2, 5);
  EXPECT_GE(t.min().item<double>(), -2);
  EXPECT_LE(t.max().item<double>(), 2);
  EXPECT_NEAR(t.std().item<double>(), 0.8796, 0.005);
  init::trunc_normal_(t, 0, 0.02, 0.1, 0.2, 5);  // outside five sigma
  EXPECT_GE(t.min().item<double>(), 0.1);
  EXPECT_NEAR(t.mean().item<double>(), 0.1037, 0.0005);
  // Outside twelve sigma, where the cumulative distribution rounds to 1.
  init::trunc_normal_(t, 0, 1, 12, 100, 5);
  EXPECT_GE(t.min().item<double>(), 12);
  EXPECT_NEAR(t.mean().item<double>(), 12.0823, 0.001);
  EXPECT_NEAR(t.std().item<double>(), 0.0813, 0.001);
}

TEST(Init, UsesTheFansOfTheWholeTensor) {
  const Tensor conv = torch::empty({8, 4, 3, 5});
  EXPECT_EQ(init::fans_of(conv).fan_in, 60);
  EXPECT_EQ(init::fans_of(conv).fan_out, 120);
  init::kaiming_uniform_(conv, std::sqrt(2.0), 1);
  EXPECT_NEAR(conv.abs().max().item<double>(), std::sqrt(6.0 / 60), 0.01);
  init::xavier_uniform_(conv, 1, 1);
  EXPECT_NEAR(conv.abs().max().item<double>(), std::sqrt(6.0 / 180), 0.01);
  const Tensor wide = torch::empty({400, 100});
  init::kaiming_normal_(wide, 1, 1);
  EXPECT_NEAR(wide.std().item<double>(), 0.1, 0.002);
  init::xavier_normal_(wide, 1, 1);
  EXPECT_NEAR(wide.std().item<double>(), std::sqrt(2.0 / 500), 0.002);
}

TEST(Init, ScalarsEmptyStridedAndLowPrecision) {
  const Tensor scalar = torch::empty({});
  init::constant_(scalar, 2.5);
  EXPECT_EQ(scalar.item<float>(), 2.5);
  init::ones_(torch::empty({0, 3}));
  const Tensor whole = torch::empty({6, 4});
  init::normal_(whole, 0, 1, 9);
  const Tensor strided = torch::empty({4, 6}).t();
  init::normal_(strided, 0, 1, 9);
  EXPECT_TRUE(torch::equal(strided, whole));
  const Tensor half = torch::empty({6, 4}, torch::kBFloat16);
  init::normal_(half, 0, 1, 9);
  EXPECT_TRUE(torch::equal(half, whole.to(torch::kBFloat16)));
  EXPECT_NE(init::seed_of(1, "a"), init::seed_of(1, "b"));
  EXPECT_NE(init::seed_of(1, "a"), init::seed_of(2, "a"));
}

TEST(Init, RefusesInvalidArguments) {
  const Tensor t = torch::empty({3});
  EXPECT_THROW(init::uniform_(t, 1, 0, 0), c10::ValueError);
  EXPECT_THROW(init::uniform_(t, 0, INFINITY, 0), c10::ValueError);
  EXPECT_THROW(init::normal_(t, 0, -1, 0), c10::ValueError);
  EXPECT_THROW(init::trunc_normal_(t, 0, 1, 2, 2, 0), c10::ValueError);
  EXPECT_THROW(init::xavier_uniform_(t, 1, 0), c10::ValueError);
  EXPECT_THROW(init::ones_(Tensor()), c10::ValueError);
  EXPECT_THAT([&] { init::ones_(torch::empty({3}, torch::kMeta)); },
              ThrowsMessage<c10::ValueError>(HasSubstr("to_empty")));
}

// Compares distributions: the largest value, or the spread, in every tensor.
TEST(Init, DefaultsMatchTorch) {
  struct BigImpl : torch::nn::Module {
    BigImpl() {
      namespace nn = torch::nn;
      register_module("linear", nn::Linear(64, 128));
      register_module("bilinear", nn::Bilinear(16, 8, 32));
      register_module("conv",
                      nn::Conv1d(nn::Conv1dOptions(16, 32, 3).groups(2)));
      register_module(
          "up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(16, 8, 3)));
      register_module("embed", nn::Embedding(100, 50));
      register_module("gru", nn::GRU(16, 32));
      register_module("rnn", nn::RNN(16, 32));
      register_module("lstm", nn::LSTM(nn::LSTMOptions(16, 64).proj_size(32)));
      register_module("cell", nn::LSTMCell(16, 32));
      register_module("attention", nn::MultiheadAttention(32, 4));
      register_module(
          "cross", nn::MultiheadAttention(
                       nn::MultiheadAttentionOptions(32, 4).kdim(16).vdim(24)));
      register_module("norm", nn::LayerNorm(nn::LayerNormOptions({7})));
      register_module(
          "instance",
          nn::InstanceNorm1d(nn::InstanceNorm1dOptions(5).affine(true)));
      register_module("prelu", nn::PReLU(nn::PReLUOptions().num_parameters(3)));
      register_module("loss", nn::CrossEntropyLoss());
      register_module("softmax", nn::AdaptiveLogSoftmaxWithLoss(
                                     nn::AdaptiveLogSoftmaxWithLossOptions(
                                         32, 60, {20, 40})));
      register_module(
          "encoder",
          nn::TransformerEncoder(nn::TransformerEncoderOptions(
              nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32),
              2)));
      register_module(
          "transformer",
          nn::Transformer(
              nn::TransformerOptions(16, 2, 1, 1).dim_feedforward(32)));
    }
  };
  torch::manual_seed(0);
  BigImpl want, got;
  FillWithNan(got);
  init::default_(got, 3);
  const auto a = Copies(want);
  const auto b = Copies(got);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor x = a[i].second.to(torch::kDouble);
    const Tensor y = b[i].second.to(torch::kDouble);
    if (x.numel() == 0) continue;
    EXPECT_EQ(torch::equal(x, torch::zeros_like(x)),
              torch::equal(y, torch::zeros_like(y)))
        << a[i].first;
    const double rms_x = x.square().mean().sqrt().item<double>();
    const double rms_y = y.square().mean().sqrt().item<double>();
    // With n values a uniform distribution's rms varies by 0.45/sqrt(n).
    const double slack = 0.02 + 2.5 / std::sqrt(static_cast<double>(x.numel()));
    EXPECT_NEAR(rms_y, rms_x, slack * rms_x) << a[i].first;
  }
}

TEST(Init, DefaultsZeroThePaddingRow) {
  torch::nn::Embedding embed(torch::nn::EmbeddingOptions(5, 3).padding_idx(-2));
  init::default_(*embed, 1);
  EXPECT_TRUE(torch::equal(embed->weight.detach()[3], torch::zeros({3})));
  EXPECT_EQ((embed->weight == 0).sum().item<int64_t>(), 3);
}

TEST(Init, DefaultsRefuseUnknownModules) {
  struct OwnImpl : torch::nn::Module {
    OwnImpl() {
      register_module("linear", torch::nn::Linear(2, 2));
      register_parameter("scale", torch::zeros({3}));
    }
  };
  torch::nn::ModuleList model;
  model->push_back(std::make_shared<OwnImpl>());
  const Tensor before = model->parameters()[1].clone();
  EXPECT_THAT([&] { init::default_(*model, 1); },
              ThrowsMessage<c10::NotImplementedError>(
                  AllOf(HasSubstr("'0'"), HasSubstr("OwnImpl"))));
  EXPECT_TRUE(torch::equal(model->parameters()[1], before));
  init::default_(*model, 1,
                 [](const std::string& name, torch::nn::Module& module,
                    uint64_t /*seed*/) {
                   if (name != "0") return false;
                   init::ones_(module.named_parameters(false)["scale"]);
                   return true;
                 });
  EXPECT_EQ(model->named_parameters()["0.scale"].sum().item<float>(), 3);
  EXPECT_FALSE(torch::equal(model->parameters()[1], before));
}

TEST(Init, DefaultsRefuseTensorsAddedToATorchModule) {
  struct ScaledImpl : torch::nn::LinearImpl {
    ScaledImpl() : LinearImpl(2, 3) {
      register_parameter("scale", torch::zeros({3}));
    }
  };
  ScaledImpl scaled;
  const Tensor before = scaled.weight.clone();
  EXPECT_THAT([&] { init::default_(scaled, 1); },
              ThrowsMessage<c10::NotImplementedError>(HasSubstr("'scale'")));
  EXPECT_TRUE(torch::equal(scaled.weight, before));
  torch::nn::CrossEntropyLoss loss(
      torch::nn::CrossEntropyLossOptions().weight(torch::ones({3})));
  EXPECT_THAT([&] { init::default_(*loss, 1); },
              ThrowsMessage<c10::NotImplementedError>(HasSubstr("'weight'")));
}

// A Transformer draws the inner modules again, except for those that the caller
// initialised.
TEST(Init, DefaultsKeepCustomValues) {
  torch::nn::Transformer model(
      torch::nn::TransformerOptions(4, 2, 1, 1).dim_feedforward(6));
  const auto is_custom = [](const std::string& name) {
    return name == "encoder.layers.0.linear1" ||
           name == "encoder.layers.0.self_attn.out_proj";
  };
  init::default_(*model, 1,
                 [&](const std::string& name, torch::nn::Module& module,
                     uint64_t /*seed*/) {
                   if (!is_custom(name)) return false;
                   for (const Tensor& t : module.parameters()) {
                     init::constant_(t, 5);
                   }
                   return true;
                 });
  int64_t num_fives = 0;
  for (const Tensor& t : model->parameters()) {
    num_fives += (t == 5).sum().item<int64_t>();
  }
  EXPECT_EQ(num_fives, (6 * 4 + 6) + (4 * 4 + 4));
}

TEST(Init, SeedsEachParameterAndTiedOnesOnce) {
  torch::nn::Linear shared(4, 4);
  torch::nn::Sequential model(shared, torch::nn::Linear(4, 4), shared);
  std::vector<std::string> names;
  init::init_parameters(
      *model,
      [&](const std::string& name, const init::Target& parameter,
          uint64_t seed) {
        EXPECT_EQ(seed, init::seed_of(11, name));
        names.push_back(name);
        init::uniform_(parameter, 0, 1, seed);
      },
      11);
  EXPECT_THAT(names, ::testing::ElementsAre("0.weight", "0.bias", "1.weight",
                                            "1.bias"));
  EXPECT_FALSE(torch::equal(model->parameters()[0], model->parameters()[2]));
}

// ---- Several ranks ----

void ExpectShardedEqualsPlain(const FullyShardOptions& options) {
  Zoo plain, sharded;
  init::default_(*plain, 42);
  fully_shard(sharded, options);
  FillWithNan(*sharded);
  init::default_(*sharded, 42);
  ExpectSame(*sharded, *plain);
}

class InitOnRanks : public ::testing::TestWithParam<int> {};

TEST_P(InitOnRanks, ValuesDoNotDependOnTheNumberOfRanks) {
  RunRanks(GetParam(), [] { ExpectShardedEqualsPlain(OnCpu()); });
}
INSTANTIATE_TEST_SUITE_P(WorldSizes, InitOnRanks,
                         ::testing::Values(1, 2, 3, 4));

TEST(InitSharded, ValuesDoNotDependOnTheDimensionOrTheReplicas) {
  RunRanks(4, [] {
    init_process_group();
    ExpectShardedEqualsPlain(
        {.mesh = init_device_mesh("cpu", {2, 2}, {"replicate", "shard"}),
         .shard_placement_fn = [](const Tensor& t) -> std::optional<Shard> {
           if (t.dim() > 1 && t.size(1) % 2 == 0) return Shard(1);
           return std::nullopt;
         }});
  });
}

TEST(InitSharded, FillsADTensorWithSeveralBoxes) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"fsdp", "tp"});
    const Tensor whole = torch::empty({11, 6});
    init::normal_(whole, 0, 1, 8);
    for (const Placements& placements :
         {Placements{StridedShard(0, 2), Shard(0)},
          Placements{Shard(0), Shard(1)}, Placements{Replicate(), Shard(1)}}) {
      const DTensor want = distribute_tensor(whole, mesh, placements);
      const DTensor got =
          want.with_local(torch::full_like(want.to_local(), NAN));
      init::normal_(got, 0, 1, 8);
      EXPECT_TRUE(torch::equal(got.to_local(), want.to_local()))
          << to_string(placements);
    }
  });
}

// A copy that is gathered when the shards change must not be used again.
TEST(InitSharded, ForwardSeesTheNewValuesAtOnce) {
  RunRanks(4, [] {
    const FullyShardOptions base = OnCpu();
    const Tensor x = torch::ones({2, 6});
    for (const ReshardAfterForward& reshard :
         {ReshardAfterForward(false), ReshardAfterForward(2),
          ReshardAfterForward(true)}) {
      torch::nn::Linear model(6, 5);
      FullyShardOptions options = base;
      options.reshard_after_forward = reshard;
      fully_shard(model, options);
      const at::NoGradGuard no_grad;
      fsdp::forward(model, x);
      init::default_(*model, 1);
      init::constant_(model->weight, 0.5);  // the member, as in torch
      init::ones_(model->bias);
      EXPECT_TRUE(
          torch::equal(fsdp::forward(model, x), torch::full({2, 5}, 4.0)));
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
