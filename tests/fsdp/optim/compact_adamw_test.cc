// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/compact_adamw.h"

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "c10/util/Exception.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/fully_shard.h"
#include "fsdp/optim/block_codes.h"
#include "fsdp/optim/stochastic_rounding.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/serialize.h"
#include "torch/types.h"

namespace fsdp::optim {
namespace {

using dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::RunRanks;
using testing::StartRank;
using testing::ThrownMessage;
using torch::Tensor;

nlohmann::json Table() {
  std::ifstream file("tests/golden/compact_adamw.json");
  return nlohmann::json::parse(file);
}

Tensor Floats(const nlohmann::json& values) {
  return torch::tensor(values.get<std::vector<double>>()).to(torch::kFloat);
}

Tensor Codes(const std::string& hexadecimal) {
  std::vector<int64_t> codes;
  for (size_t i = 0; i < hexadecimal.size(); i += 2) {
    codes.push_back(std::stoi(hexadecimal.substr(i, 2), nullptr, 16));
  }
  return torch::tensor(codes).to(torch::kByte).view({16, 256});
}

// As make_compact_adamw.py makes them.
Tensor Start() {
  const Tensor index = torch::arange(4096);
  return (((index * 37) % 101 - 50).to(torch::kFloat) / 50).view({16, 256});
}
Tensor Gradient(int64_t step) {
  const Tensor index = torch::arange(4096);
  const Tensor numbers = ((index * 53 + step * 17) % 97 - 48).to(torch::kFloat);
  return (numbers / 480 * (1 + step)).view({16, 256});
}

CompactAdamWOptions Options(at::ScalarType moments) {
  return CompactAdamWOptions(1e-2)
      .weight_decay(0.1)
      .betas({0.9, 0.99})
      .moments(moments);
}

const CompactAdamWParamState& OnlyState(const CompactAdamW& optimizer) {
  return static_cast<const CompactAdamWParamState&>(
      *optimizer.state().begin()->second);
}

TEST(BlockCodes, HaveTheMapsOfBitsandbytesAndTorchao) {
  const nlohmann::json table = Table();
  EXPECT_TRUE(torch::equal(DynamicMap(true, torch::kCPU),
                           Floats(table["maps"]["signed"])));
  EXPECT_TRUE(torch::equal(DynamicMap(false, torch::kCPU),
                           Floats(table["maps"]["unsigned"])));
}

// Row by row: blocks do not depend on the rows that a rank has.
TEST(BlockCodes, AreTheSameForPartsOfTheRows) {
  torch::manual_seed(3);
  const Tensor map = DynamicMap(true, torch::kCPU);
  const Tensor values = torch::randn({7, 3, 100});
  const BlockCodes whole = EncodeBlocks(values, map);
  EXPECT_EQ(whole.scales.sizes(), (std::vector<int64_t>{7, 2}));
  const BlockCodes part = EncodeBlocks(values.narrow(0, 2, 4), map);
  EXPECT_TRUE(torch::equal(part.codes, whole.codes.narrow(0, 2, 4)));
  EXPECT_TRUE(torch::equal(part.scales, whole.scales.narrow(0, 2, 4)));
  const Tensor decoded = DecodeBlocks(whole, map);
  EXPECT_EQ(decoded.sizes(), values.sizes());
  // Half of the widest step of the map, 0.9 / 64, times the greatest scale.
  EXPECT_LE((decoded - values).abs().max().item<float>(),
            0.00704F * whole.scales.max().item<float>() + 1e-6F);
}

TEST(StochasticRounding, KeepsTheMeanAndNumbersOfBfloat16) {
  const Tensor value = torch::full({100000}, 1.0F + 0.001953125F);  // a quarter
  const Tensor rounded = RoundStochastically(value, 5);
  EXPECT_EQ(rounded.scalar_type(), torch::kBFloat16);
  EXPECT_NEAR(rounded.to(torch::kDouble).mean().item<double>(), 1.001953125,
              5e-5);
  const Tensor exact = torch::randn({1000}).to(torch::kBFloat16);
  EXPECT_TRUE(
      torch::equal(RoundStochastically(exact.to(torch::kFloat), 6), exact));
  EXPECT_TRUE(torch::equal(RoundStochastically(-value, 5), -rounded));
  EXPECT_TRUE(torch::equal(RoundStochastically(value, 5), rounded));
  EXPECT_FALSE(torch::equal(RoundStochastically(value, 7), rounded));
}

TEST(CompactAdamW, StepsCodesAsBitsandbytesAndTorchaoDo) {
  const nlohmann::json table = Table();
  const Tensor parameter = Start().requires_grad_();
  CompactAdamW optimizer({parameter}, Options(torch::kByte));
  for (int64_t step = 0; step < 4; ++step) {
    parameter.mutable_grad() = Gradient(step);
    optimizer.step();
  }
  const CompactAdamWParamState& state = OnlyState(optimizer);
  EXPECT_TRUE(torch::equal(state.state1(), Codes(table["codes1"])));
  EXPECT_TRUE(torch::equal(state.state2(), Codes(table["codes2"])));
  EXPECT_TRUE(torch::allclose(state.absmax1().flatten(),
                              Floats(table["scales1"]), 1e-6, 0));
  EXPECT_TRUE(torch::allclose(state.absmax2().flatten(),
                              Floats(table["scales2"]), 1e-6, 0));
  EXPECT_TRUE(torch::allclose(parameter.detach().flatten().slice(0, 0, {}, 16),
                              Floats(table["parameters"]), 0, 1e-6));
}

TEST(CompactAdamW, StepsAsAdamWDoesInFloat32) {
  const Tensor ours = Start().requires_grad_();
  const Tensor theirs = Start().requires_grad_();
  CompactAdamW optimizer({ours}, Options(torch::kFloat));
  torch::optim::AdamW reference(
      {theirs},
      torch::optim::AdamWOptions(1e-2).weight_decay(0.1).betas({0.9, 0.99}));
  for (int64_t step = 0; step < 8; ++step) {
    ours.mutable_grad() = Gradient(step);
    theirs.mutable_grad() = Gradient(step);
    optimizer.step();
    reference.step();
  }
  EXPECT_TRUE(torch::allclose(ours, theirs, 0, 2e-6));
}

// Steps far below half of bfloat16's distance between two numbers: rounding to
// the nearest loses all of them.
TEST(CompactAdamW, KeepsSmallStepsByMastersOrAtRandom) {
  const auto train = [](CompactAdamWOptions options) {
    const Tensor parameter =
        torch::ones({64, 64}, torch::kBFloat16).requires_grad_();
    CompactAdamW optimizer({parameter}, options.weight_decay(0));
    for (int step = 0; step < 40; ++step) {
      parameter.mutable_grad() = torch::ones_like(parameter);
      optimizer.step();
    }
    return parameter.detach().to(torch::kFloat).mean().item<double>();
  };
  const CompactAdamWOptions options(1e-4);
  EXPECT_EQ(train(CompactAdamWOptions(options).stochastic_rounding(false)), 1);
  EXPECT_NEAR(train(options), 1 - 40e-4, 4e-4);
  EXPECT_NEAR(train(CompactAdamWOptions(options)
                        .stochastic_rounding(false)
                        .master_weights(true)),
              1 - 40e-4, 2.1e-3);
}

TEST(CompactAdamW, KeepsFewBytes) {
  const auto bytes = [](const CompactAdamWOptions& options) {
    const Tensor parameter =
        torch::ones({64, 512}, torch::kBFloat16).requires_grad_();
    parameter.mutable_grad() = torch::ones_like(parameter);
    CompactAdamW optimizer({parameter}, options);
    optimizer.step();
    return StateBytes(optimizer);
  };
  constexpr uint64_t kNumel = 64 * 512;
  constexpr uint64_t kStep = 4;
  CompactAdamWOptions options;
  EXPECT_EQ(bytes(options.moments(torch::kFloat)), 8 * kNumel + kStep);
  EXPECT_EQ(bytes(options.moments(torch::kBFloat16)), 4 * kNumel + kStep);
  constexpr uint64_t kScales = 2 * kNumel / 256 * 4;
  constexpr uint64_t kMaps = 2 * 256 * 4;
  EXPECT_EQ(bytes(options.moments(torch::kByte)),
            2 * kNumel + kScales + kMaps + kStep);
  EXPECT_EQ(bytes(options.master_weights(true)),
            6 * kNumel + kScales + kMaps + kStep);
  std::ostringstream text;
  fsdp::print(*torch::nn::Linear(2, 2), text, {{"optimizer", 3 << 20}});
  EXPECT_THAT(text.str(), HasSubstr("optimizer: 3.0 MiB on this rank"));
}

TEST(CompactAdamW, RefusesBadNumbersByName) {
  const auto refused = [](const CompactAdamWOptions& options) {
    return ThrownMessage(
        [&] { CompactAdamW optimizer({torch::ones({2})}, options); });
  };
  EXPECT_THAT(refused(CompactAdamWOptions(-1)), HasSubstr("lr -1 is below 0"));
  EXPECT_THAT(refused(CompactAdamWOptions().betas({0.9, 1})),
              HasSubstr("the second beta, 1"));
  EXPECT_THAT(refused(CompactAdamWOptions().moments(torch::kHalf)),
              HasSubstr("moments are Half"));
  EXPECT_THAT(ThrownMessage([] {
                CompactAdamW optimizer(
                    std::vector<Tensor>{torch::ones({2}, torch::kDouble)});
              }),
              HasSubstr("a parameter is Double"));
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    wide = register_module("wide", torch::nn::Linear(300, 20));
    narrow = register_module("narrow", torch::nn::Linear(20, 7));
  }
  Tensor forward(const Tensor& x) { return narrow(wide(x).tanh()); }
  torch::nn::Linear wide{nullptr}, narrow{nullptr};
};
TORCH_MODULE(Net);

Net MakeNet(bool sharded) {
  torch::manual_seed(5);
  Net net;
  if (sharded) fully_shard(net->wide);
  if (sharded) fully_shard(net);
  return net;
}

// Equal on every rank.
void Train(Net& net, torch::optim::Optimizer& optimizer, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    torch::manual_seed(100 + static_cast<uint64_t>(step));
    const Tensor x = torch::randn({6, 300});
    optimizer.zero_grad();
    net(x).square().mean().backward();
    optimizer.step();
  }
}

StateDict State(Net& net, CompactAdamW& optimizer) {
  return {{"model", *get_model_state_dict(*net)},
          {"optim", *get_optimizer_state_dict(*net, optimizer)}};
}

void ExpectSameParameters(Net& net, Net& reference) {
  const auto want = reference->named_parameters();
  for (const auto& [name, parameter] : fsdp::named_parameters(*net)) {
    EXPECT_TRUE(
        torch::allclose(parameter.full_tensor(), want[name], 1e-4, 2e-5))
        << name;
  }
}

// Codes need no other rank's numbers, and are the same on any number of ranks.
TEST(CompactAdamW, ResumesCodesOnOtherNumbersOfRanks) {
  const std::string path = ::testing::TempDir() + "/compact";
  RunRanks(3, [&] {
    StartRank();
    Net net = MakeNet(true);
    CompactAdamW optimizer(net->parameters(), Options(torch::kByte));
    Train(net, optimizer, 0, 3);
    EXPECT_OK(save(State(net, optimizer), path));
  });
  for (const int world_size : {1, 2}) {
    RunRanks(world_size, [&] {
      StartRank();
      Net net = MakeNet(true);
      CompactAdamW optimizer(net->parameters(), Options(torch::kByte));
      StateDict state = State(net, optimizer);
      EXPECT_OK(load(state, path));
      EXPECT_OK(set_optimizer_state_dict(
          *net, optimizer, *state.find("optim")->get_if<StateDict>()));
      Train(net, optimizer, 3, 6);
      Net reference = MakeNet(false);
      CompactAdamW whole(reference->parameters(), Options(torch::kByte));
      Train(reference, whole, 0, 6);
      ExpectSameParameters(net, reference);
    });
  }
}

// Names and layouts of bitsandbytes: scales in one list, small parameters in
// float32, a step that is a number.
TEST(CompactAdamW, TakesTheStateOfBitsandbytes) {
  const nlohmann::json table = Table();
  torch::nn::Linear layer(256, 16);
  CompactAdamW optimizer(layer->parameters(), Options(torch::kByte));
  StateDict weight = {{"step", 4},
                      {"state1", Codes(table["codes1"])},
                      {"absmax1", Floats(table["scales1"])},
                      {"qmap1", Floats(table["maps"]["signed"])},
                      {"state2", Codes(table["codes2"])},
                      {"absmax2", Floats(table["scales2"])},
                      {"qmap2", Floats(table["maps"]["unsigned"])}};
  StateDict bias = {{"step", 4},
                    {"state1", torch::full({16}, 0.25)},
                    {"state2", torch::full({16}, 0.5)}};
  const StateDict groups = {{"lr", 0.5},
                            {"params", StateList{"weight", "bias"}}};
  const StateDict state = {
      {"state", StateDict{{"weight", weight}, {"bias", bias}}},
      {"param_groups", StateList{groups}}};
  EXPECT_OK(set_optimizer_state_dict(*layer, optimizer, state));
  const auto find = [&](const Tensor& parameter) {
    return static_cast<const CompactAdamWParamState*>(
        optimizer.state().at(parameter.unsafeGetTensorImpl()).get());
  };
  EXPECT_TRUE(
      torch::equal(find(layer->weight)->state1(), Codes(table["codes1"])));
  EXPECT_TRUE(torch::equal(find(layer->weight)->absmax2().flatten(),
                           Floats(table["scales2"])));
  EXPECT_EQ(find(layer->weight)->step().item<float>(), 4);
  EXPECT_TRUE(
      torch::equal(find(layer->bias)->exp_avg(), torch::full({16}, 0.25)));
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.5);
  // Numbers do not become codes.
  weight["state1"] = torch::zeros({16, 256});
  EXPECT_THAT(
      set_optimizer_state_dict(
          *layer, optimizer,
          {{"state", StateDict{{"weight", weight}, {"bias", bias}}},
           {"param_groups", StateList{groups}}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("state.weight.state1 has numbers, but codes")));
}

// What AdamW saved in float32 continues with moments in bfloat16.
TEST(CompactAdamW, TakesTheStateOfAdamW) {
  Net net = MakeNet(false);
  torch::optim::AdamW adamw(net->parameters());
  Train(net, adamw, 0, 2);
  const StateDict state = *get_optimizer_state_dict(*net, adamw);
  CompactAdamW optimizer(net->parameters());
  EXPECT_OK(set_optimizer_state_dict(*net, optimizer, state));
  const StateDict taken = *get_optimizer_state_dict(*net, optimizer);
  const auto moment = [](const StateDict& dict) {
    return *dict.find("state")
                ->get_if<StateDict>()
                ->find("wide.weight")
                ->get_if<StateDict>()
                ->find("exp_avg")
                ->get_if<Tensor>();
  };
  EXPECT_TRUE(torch::equal(moment(taken), moment(state).to(torch::kBFloat16)));
  // Codes would be numbers there.
  CompactAdamW codes(net->parameters(), Options(torch::kByte));
  EXPECT_THAT(set_optimizer_state_dict(*net, codes, state),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("missing: state.wide.weight.state1"),
                             HasSubstr("unexpected"))));
}

TEST(CompactAdamW, SaysThatTorchSaveDoesNotSaveIt) {
  Net net = MakeNet(false);
  CompactAdamW optimizer(net->parameters());
  std::ostringstream file;
  EXPECT_THAT(ThrownMessage([&] { torch::save(optimizer, file); }),
              HasSubstr("fsdp::save saves it"));
}

}  // namespace
}  // namespace fsdp::optim
