// State dicts of whole and sharded models and optimizers over real processes:
// their names, the memory of their values, and that training continues from
// them as if nothing had happened, on the same mesh or another.
#include "fsdp/checkpoint/state_dict.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/materialize.h"
#include "fsdp/optim/fused_adamw.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/torch.h"

namespace fsdp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::TinyModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 12;

using OptimizerPtr = std::unique_ptr<torch::optim::Optimizer>;
using MakeOptimizer =
    std::function<OptimizerPtr(std::vector<torch::Tensor> parameters)>;

struct NamedOptimizer {
  std::string name;
  MakeOptimizer make;
};

TinyModel MakeModel(int64_t seed, bool tied = false) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  fsdp::testing::TinyModelOptions options;
  options.num_blocks = 2;
  options.tied = tied;
  return TinyModel(options);
}

void ShardModel(TinyModel& model, const std::vector<int64_t>& mesh_shape) {
  FullyShardOptions options;
  if (mesh_shape.size() == 1) {
    options.mesh = init_device_mesh(c10::kCPU, mesh_shape, {"shard"});
  } else {
    options.mesh =
        init_device_mesh(c10::kCPU, mesh_shape, {"replicate", "shard"});
  }
  for (const auto& block : *model->blocks) fully_shard(block, options);
  fully_shard(model, options);
}

// One step on this rank's slice of the global batch; the loss of the slice.
double TrainStep(TinyModel& model, torch::optim::Optimizer& optimizer,
                 int64_t step, int64_t rank, int64_t world) {
  const torch::Tensor batch =
      fsdp::testing::TinyBatch(step, kBatch)
          .narrow(0, rank * kBatch / world, kBatch / world);
  optimizer.zero_grad();
  const torch::Tensor loss = fsdp::testing::TinyLoss(model, batch);
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

OptimizerPtr MakeAdamW(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::AdamW>(
      parameters, torch::optim::AdamWOptions(1e-2));
}

const StateDict& Dict(const StateValue& value) {
  return *value.get_if<StateDict>();
}

std::vector<std::string> KeysOf(const StateDict& dict) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : dict) keys.push_back(key);
  return keys;
}

// The whole tensor of a leaf; collective for a DTensor.
torch::Tensor Whole(const StateValue& value) {
  if (const auto* tensor = value.get_if<DTensor>()) {
    return tensor->full_tensor();
  }
  const auto* tensor = value.get_if<at::Tensor>();
  return tensor == nullptr ? torch::Tensor() : *tensor;
}

// Values of tensors and everything plain; collective for DTensors.
void ExpectSame(const StateValue& a, const StateValue& b,
                const std::string& name, double tolerance = 0) {
  SCOPED_TRACE(name);
  if (const auto* dict = a.get_if<StateDict>()) {
    ASSERT_NE(b.get_if<StateDict>(), nullptr);
    EXPECT_EQ(KeysOf(*dict), KeysOf(Dict(b)));
    for (const auto& [key, value] : *dict) {
      ASSERT_NE(Dict(b).find(key), nullptr) << key;
      ExpectSame(value, *Dict(b).find(key), name + "." + key, tolerance);
    }
    return;
  }
  const auto items_of = [](const StateValue& value) {
    if (const auto* tuple = value.get_if<StateTuple>()) return &tuple->items;
    return value.get_if<StateList>();
  };
  if (const StateList* list = items_of(a)) {
    ASSERT_NE(items_of(b), nullptr);
    ASSERT_EQ(list->size(), items_of(b)->size());
    for (size_t i = 0; i < list->size(); ++i) {
      ExpectSame((*list)[i], (*items_of(b))[i], name, tolerance);
    }
    return;
  }
  if (const torch::Tensor whole = Whole(a); whole.defined()) {
    const torch::Tensor other = Whole(b);
    ASSERT_TRUE(other.defined());
    EXPECT_EQ(whole.scalar_type(), other.scalar_type());
    EXPECT_TRUE(torch::allclose(whole, other, tolerance, tolerance))
        << whole << "\n"
        << other;
    return;
  }
  ASSERT_EQ(a.variant().index(), b.variant().index());
  if (const auto* text = a.get_if<std::string>()) {
    EXPECT_EQ(*text, *b.get_if<std::string>());
  }
  if (const auto* number = a.get_if<double>()) {
    EXPECT_EQ(*number, *b.get_if<double>());
  }
  if (const auto* flag = a.get_if<bool>()) {
    EXPECT_EQ(*flag, *b.get_if<bool>());
  }
}

TEST(StateDictOfModel, HasTheNamesAndTheOrderOfPython) {
  torch::nn::Sequential model(
      torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2),
      torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
  const auto state = get_model_state_dict(*model);
  ASSERT_OK(state.status());
  EXPECT_THAT(
      KeysOf(*state),
      ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                  "1.running_var", "1.num_batches_tracked", "2.weight"));
  EXPECT_TRUE(state->find("0.weight")
                  ->get_if<at::Tensor>()
                  ->is_alias_of(model->parameters()[0]));
}

TEST(StateDictOfModel, TiedParametersStandUnderEveryNameAndAnyWillDo) {
  TinyModel model = MakeModel(1, /*tied=*/true);
  TinyModel other = MakeModel(2, /*tied=*/true);
  auto state = get_model_state_dict(*model);
  ASSERT_OK(state.status());
  ASSERT_NE(state->find("tokens.weight"), nullptr);
  ASSERT_NE(state->find("head.weight"), nullptr);
  for (const char* left_out : {"tokens.weight", "head.weight"}) {
    SCOPED_TRACE(left_out);
    StateDict one = *state;
    one.erase(left_out);
    ASSERT_OK(set_model_state_dict(*other, one).status());
    EXPECT_TRUE(torch::equal(other->head->weight, model->tokens->weight));
    const at::NoGradGuard no_grad;
    other->head->weight.zero_();
  }
  state->erase("tokens.weight");
  state->erase("head.weight");
  EXPECT_THAT(set_model_state_dict(*other, *state),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("missing: tokens.weight, head.weight")));
}

TEST(StateDictOfModel, FrozenParametersCanBeLeftOut) {
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::Linear(2, 2));
  for (auto& parameter : model[0]->parameters()) {
    parameter.requires_grad_(false);
  }
  const auto state =
      get_model_state_dict(*model, {.ignore_frozen_params = true});
  ASSERT_OK(state.status());
  EXPECT_THAT(KeysOf(*state), ElementsAre("1.weight", "1.bias"));
}

TEST(StateDictOfModel, SubmodulesWithAndWithoutTheirPrefix) {
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::Linear(2, 2));
  StateDictOptions options;
  options.submodules = {model[1].get()};
  EXPECT_THAT(KeysOf(*get_model_state_dict(*model, options)),
              ElementsAre("1.weight", "1.bias"));
  options.keep_submodule_prefixes = false;
  const auto state = get_model_state_dict(*model, options);
  EXPECT_THAT(KeysOf(*state), ElementsAre("weight", "bias"));
  // Entries outside the submodule are not missing.
  const StateDict ones = {{"weight", torch::ones({2, 2})},
                          {"bias", torch::ones({2})}};
  ASSERT_OK(set_model_state_dict(*model, ones, options).status());
  EXPECT_TRUE(torch::equal(model[1]->parameters()[0], torch::ones({2, 2})));
  options.submodules = {model[0].get(), model[1].get()};
  EXPECT_THAT(get_model_state_dict(*model, options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("prefixes")));
  torch::nn::Linear stranger(1, 1);
  options = {};
  options.submodules = {stranger.get()};
  EXPECT_THAT(get_model_state_dict(*model, options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not inside")));
}

TEST(StateDictOfModel, EverythingWrongIsToldAtOnceAndNothingChanges) {
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::Linear(2, 2));
  const torch::Tensor before = model->parameters()[0].detach().clone();
  StateDict state = {{"0.weight", torch::zeros({2, 3})},
                     {"0.bias", torch::zeros({3})},
                     {"1.weight", "text"},
                     {"2.weight", torch::zeros({1})}};
  EXPECT_THAT(
      set_model_state_dict(*model, state),
      StatusIs(
          StatusCode::kInvalidArgument,
          AllOf(HasSubstr("missing: 1.bias"), HasSubstr("unexpected: 2.weight"),
                HasSubstr("0.bias has shape [3], but [2] is wanted"),
                HasSubstr("1.weight is a text, not a tensor"))));
  EXPECT_TRUE(torch::equal(model->parameters()[0], before));
  // Not strict: names may differ, shapes may not.
  state.erase("0.bias");
  state.erase("1.weight");
  const auto keys = set_model_state_dict(*model, state, {.strict = false});
  ASSERT_OK(keys.status());
  EXPECT_THAT(keys->missing_keys, ElementsAre("0.bias", "1.weight", "1.bias"));
  EXPECT_THAT(keys->unexpected_keys, ElementsAre("2.weight"));
  EXPECT_TRUE(torch::equal(model->parameters()[0], torch::zeros({2, 3})));
  EXPECT_THAT(
      set_model_state_dict(*model, state, {.broadcast_from_rank0 = true}),
      StatusIs(StatusCode::kInvalidArgument,
               HasSubstr("full_state_dict must be true")));
}

TEST(StateDictOfModel, ValuesAreCastIntoTensorsThatStayTheObjectsTheyAre) {
  torch::nn::Linear model(3, 2);
  const torch::Tensor weight = model->weight;
  const void* const data = weight.data_ptr();
  const StateDict state = {{"weight", torch::full({2, 3}, 7, torch::kLong)},
                           {"bias", torch::zeros({2}, torch::kDouble)}};
  ASSERT_OK(set_model_state_dict(*model, state).status());
  EXPECT_TRUE(torch::equal(weight, torch::full({2, 3}, 7.0)));
  EXPECT_EQ(weight.data_ptr(), data);
  EXPECT_THAT(
      set_model_state_dict(
          *model, {{"weight", torch::zeros({2, 3}, torch::kComplexFloat)},
                   {"bias", torch::zeros({2}).to(torch::kMeta)}}),
      StatusIs(StatusCode::kInvalidArgument,
               AllOf(HasSubstr("weight is complex"),
                     HasSubstr("bias is on the meta device"))));
}

TEST(StateDictOfModel, NeedsNoProcessGroup) {
  TinyModel model = MakeModel(12);
  OptimizerPtr optimizer = MakeAdamW(model->parameters());
  TrainStep(model, *optimizer, 0, 0, 1);
  const StateDictOptions options = {.full_state_dict = true,
                                    .cpu_offload = true};
  const auto states = get_state_dict(*model, *optimizer, options);
  ASSERT_OK(states.status());
  EXPECT_FALSE(states->first.find("tokens.weight")
                   ->get_if<at::Tensor>()
                   ->is_alias_of(model->tokens->weight));
  TinyModel other = MakeModel(13);
  OptimizerPtr other_optimizer = MakeAdamW(other->parameters());
  StateDictOptions from_rank0 = options;
  from_rank0.broadcast_from_rank0 = true;
  for (const StateDictOptions& set_options : {options, from_rank0}) {
    ASSERT_OK(set_state_dict(*other, *other_optimizer, states->first,
                             states->second, set_options)
                  .status());
    ExpectSame(states->first, *get_model_state_dict(*other), "model");
    ExpectSame(states->second,
               *get_optimizer_state_dict(*other, *other_optimizer),
               "optimizer");
  }
}

// Shards alias, whole tensors equal those of the model that was sharded, and
// offload puts them where the options say.
TEST(StateDictOfShardedModel, ShardedFullAndOffloaded) {
  for (const int world : {1, 2, 3}) {
    RunRanks(world, [world] {
      init_process_group();
      TinyModel reference = MakeModel(3);
      TinyModel model = MakeModel(3);
      ShardModel(model, {world});
      const auto sharded = get_model_state_dict(*model);
      ASSERT_OK(sharded.status());
      const auto whole = get_model_state_dict(*reference);
      ExpectSame(*whole, *sharded, "model");
      size_t i = 0;
      const auto parameters = named_parameters(*model);
      ASSERT_EQ(parameters.size(), sharded->size());
      for (const auto& [name, value] : *sharded) {
        const auto* tensor = value.get_if<DTensor>();
        ASSERT_NE(tensor, nullptr) << name;
        EXPECT_EQ(name, parameters[i].first);
        EXPECT_TRUE(
            tensor->to_local().is_alias_of(parameters[i++].second.to_local()))
            << name;
        EXPECT_FALSE(tensor->to_local().requires_grad());
      }

      const auto full = get_model_state_dict(*model, {.full_state_dict = true});
      ASSERT_OK(full.status());
      for (const auto& [name, value] : *full) {
        EXPECT_NE(value.get_if<at::Tensor>(), nullptr) << name;
      }
      ExpectSame(*whole, *full, "full");

      const auto offloaded =
          get_model_state_dict(*model, {.cpu_offload = true});
      ASSERT_OK(offloaded.status());
      for (const auto& [name, value] : *offloaded) {
        EXPECT_FALSE(value.get_if<DTensor>()->to_local().is_alias_of(
            sharded->find(name)->get_if<DTensor>()->to_local()))
            << name;
      }
      const auto rank0 = get_model_state_dict(
          *model, {.full_state_dict = true, .cpu_offload = true});
      ASSERT_OK(rank0.status());
      if (get_rank() == 0) {
        ExpectSame(*whole, *rank0, "rank 0");
      } else {
        EXPECT_TRUE(rank0->empty());
      }
    });
  }
}

TEST(StateDictOfShardedModel, SetsShardsAndWhatIsGatheredFollows) {
  RunRanks(2, [] {
    init_process_group();
    TinyModel reference = MakeModel(4);
    TinyModel model = MakeModel(5);
    FullyShardOptions options;
    options.reshard_after_forward = false;
    fully_shard(model, options);
    TinyModel source = MakeModel(4);
    ShardModel(source, {2});
    const torch::Tensor batch = fsdp::testing::TinyBatch(0, kBatch);
    const at::NoGradGuard no_grad;
    fsdp::testing::TinyLoss(model, batch);  // leaves parameters gathered
    // DTensors of another model on the same mesh.
    ASSERT_OK(
        set_model_state_dict(*model, *get_model_state_dict(*source)).status());
    EXPECT_EQ(fsdp::testing::TinyLoss(model, batch).item<float>(),
              fsdp::testing::TinyLoss(reference, batch).item<float>());
    // Placed otherwise.
    StateDict replicated = *get_model_state_dict(*source);
    for (auto& [name, value] : replicated) {
      value = value.get_if<DTensor>()->redistribute({Replicate()});
    }
    TinyModel again = MakeModel(6);
    ShardModel(again, {2});
    ASSERT_OK(set_model_state_dict(*again, replicated).status());
    ExpectSame(*get_model_state_dict(*reference), *get_model_state_dict(*again),
               "again");
    // Whole tensors only on request.
    EXPECT_THAT(set_model_state_dict(*again, *get_model_state_dict(*reference)),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("need full_state_dict")));
  });
}

TEST(StateDictOfShardedModel, TheErrorOfOneRankIsThatOfAll) {
  RunRanks(3, [] {
    init_process_group();
    TinyModel model = MakeModel(7);
    ShardModel(model, {3});
    StateDict state = *get_model_state_dict(*MakeModel(8));
    if (get_rank() == 1) {
      state.erase("norm.weight");
      state["tokens.weight"] = torch::zeros({2, 2});
    }
    const auto before = get_model_state_dict(*model, {.full_state_dict = true});
    EXPECT_THAT(
        set_model_state_dict(*model, state, {.full_state_dict = true}),
        StatusIs(StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("rank 1"), HasSubstr("missing: norm.weight"),
                       HasSubstr("tokens.weight has shape [2, 2]"))));
    ExpectSame(*before, *get_model_state_dict(*model), "unchanged");
    // The next call is none the worse.
    state = *get_model_state_dict(*MakeModel(8));
    EXPECT_OK(set_model_state_dict(*model, state, {.full_state_dict = true})
                  .status());

    // Getting: one rank's optimizer is not of this module.
    OptimizerPtr optimizer = MakeAdamW(
        get_rank() == 2 ? std::vector{torch::ones({1}).requires_grad_()}
                        : model->parameters());
    EXPECT_THAT(
        get_optimizer_state_dict(*model, *optimizer, {.full_state_dict = true}),
        StatusIs(StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("rank 2"), HasSubstr("none of"))));
  });
}

TEST(StateDictOfOptimizer, SpeaksAsPythonDoes) {
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::Linear(2, 2));
  model[1]->parameters()[1].requires_grad_(false);
  OptimizerPtr optimizer = MakeAdamW(model->parameters());
  const auto state = get_optimizer_state_dict(*model, *optimizer);
  ASSERT_OK(state.status());
  EXPECT_THAT(KeysOf(*state), ElementsAre("state", "param_groups"));
  EXPECT_THAT(KeysOf(Dict(*state->find("state"))),
              ElementsAre("0.weight", "0.bias", "1.weight"));
  const StateDict& weight = Dict(*Dict(*state->find("state")).find("0.weight"));
  EXPECT_THAT(KeysOf(weight), ElementsAre("step", "exp_avg", "exp_avg_sq"));
  const auto& step = *weight.find("step")->get_if<at::Tensor>();
  EXPECT_EQ(step.dim(), 0);
  EXPECT_EQ(step.scalar_type(), at::kFloat);
  EXPECT_EQ(step.item<float>(), 0);
  const auto& groups = *state->find("param_groups")->get_if<StateList>();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_THAT(KeysOf(Dict(groups[0])),
              ElementsAre("lr", "betas", "eps", "weight_decay", "amsgrad",
                          "maximize", "foreach", "capturable", "differentiable",
                          "fused", "decoupled_weight_decay", "params"));
  // The frozen one is listed.
  EXPECT_EQ(Dict(groups[0]).find("params")->get_if<StateList>()->size(), 4u);

  const auto flat = get_optimizer_state_dict(
      *model, *optimizer, {.flatten_optimizer_state_dict = true});
  ASSERT_OK(flat.status());
  EXPECT_EQ(flat->size(), 3u * 3 + 4u * 11);
  EXPECT_EQ(*flat->find("param_groups.1.bias.lr")->get_if<double>(), 1e-2);
  EXPECT_NE(flat->find("state.0.bias.exp_avg_sq")->get_if<at::Tensor>(),
            nullptr);
}

TEST(StateDictOfOptimizer, GettingChangesNoStepThatFollows) {
  TinyModel one = MakeModel(9);
  TinyModel two = MakeModel(9);
  OptimizerPtr first = MakeAdamW(one->parameters());
  OptimizerPtr second = MakeAdamW(two->parameters());
  ASSERT_OK(get_optimizer_state_dict(*two, *second).status());
  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(TrainStep(one, *first, step, 0, 1),
              TrainStep(two, *second, step, 0, 1));
  }
}

std::vector<NamedOptimizer> AllOptimizers() {
  namespace optim = torch::optim;
  using Parameters = std::vector<torch::Tensor>;
  return {
      {"SGD",
       [](Parameters p) {
         return std::make_unique<optim::SGD>(
             p, optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
       }},
      {"SGD without state",
       [](Parameters p) {
         return std::make_unique<optim::SGD>(p, optim::SGDOptions(0.05));
       }},
      {"Adam",
       [](Parameters p) {
         return std::make_unique<optim::Adam>(p, optim::AdamOptions(0.01));
       }},
      {"AdamW",
       [](Parameters p) {
         return std::make_unique<optim::AdamW>(
             p, optim::AdamWOptions(0.01).amsgrad(true));
       }},
      {"RMSprop",
       [](Parameters p) {
         return std::make_unique<optim::RMSprop>(
             p, optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
       }},
      {"Adagrad",
       [](Parameters p) {
         return std::make_unique<optim::Adagrad>(
             p, optim::AdagradOptions(0.05).initial_accumulator_value(0.1));
       }},
      {"FusedAdamW",
       [](Parameters p) {
         return std::make_unique<FusedAdamW>(p, FusedAdamWOptions());
       }},
  };
}

// Trains on one mesh, carries model and optimizer over, and compares further
// training with the first.
TEST(StateDictOfOptimizer, TrainingGoesOnFromItOnAnotherMesh) {
  RunRanks(4, [] {
    init_process_group();
    const int64_t rank = get_rank();
    for (const NamedOptimizer& kind : AllOptimizers()) {
      SCOPED_TRACE(kind.name);
      TinyModel model = MakeModel(10, /*tied=*/true);
      ShardModel(model, {4});
      OptimizerPtr optimizer = kind.make(model->parameters());
      for (int64_t step = 0; step < 2; ++step) {
        TrainStep(model, *optimizer, step, rank, 4);
      }
      // Flattened for some.
      const StateDictOptions options = {
          .full_state_dict = true,
          .flatten_optimizer_state_dict = kind.name.size() % 2 == 0};
      const auto states = get_state_dict(*model, *optimizer, options);
      ASSERT_OK(states.status());

      TinyModel other = MakeModel(11, /*tied=*/true);
      ShardModel(other, {2, 2});
      OptimizerPtr other_optimizer = kind.make(other->parameters());
      for (auto& group : other_optimizer->param_groups()) {
        group.options().set_lr(77);
      }
      ASSERT_OK(set_state_dict(*other, *other_optimizer, states->first,
                               states->second, options)
                    .status());
      const auto again = get_state_dict(*other, *other_optimizer, options);
      ASSERT_OK(again.status());
      ExpectSame(states->first, again->first, "model");
      ExpectSame(states->second, again->second, "optimizer");
      for (int64_t step = 2; step < 4; ++step) {
        EXPECT_NEAR(TrainStep(model, *optimizer, step, rank, 4),
                    TrainStep(other, *other_optimizer, step, rank, 4), 1e-5);
      }
    }
  });
}

TEST(StateDictOfOptimizer, NumbersForNamesAreUnderstood) {
  torch::nn::Linear model(3, 2);
  OptimizerPtr optimizer = MakeAdamW(model->parameters());
  const auto entry = [](double value, at::IntArrayRef shape) {
    return StateDict({{"step", 5},
                      {"exp_avg", torch::full(shape, value)},
                      {"exp_avg_sq", torch::full(shape, value)}});
  };
  const StateDict raw = {
      {"state", StateDict({{"0", entry(0.5, {2, 3})}, {"1", entry(2, {2})}})},
      {"param_groups", StateList{StateDict({{"lr", 0.25},
                                            {"betas", StateList{0.5, 0.75}},
                                            {"fused", StateValue()},
                                            {"initial_lr", 1.0},
                                            {"params", StateList{0, 1}}})}}};
  ASSERT_OK(set_optimizer_state_dict(*model, *optimizer, raw));
  const auto state = get_optimizer_state_dict(*model, *optimizer);
  ASSERT_OK(state.status());
  const StateDict& bias = Dict(*Dict(*state->find("state")).find("bias"));
  EXPECT_EQ(Whole(*bias.find("step")).item<float>(), 5);
  EXPECT_TRUE(torch::equal(Whole(*bias.find("exp_avg")), torch::full({2}, 2.)));
  const auto& options = static_cast<torch::optim::AdamWOptions&>(
      optimizer->param_groups()[0].options());
  EXPECT_EQ(options.lr(), 0.25);
  EXPECT_EQ(options.betas(), std::make_tuple(0.5, 0.75));
  EXPECT_EQ(options.eps(), 1e-8);
}

TEST(StateDictOfOptimizer, EverythingWrongIsToldAtOnceAndNothingChanges) {
  torch::nn::Linear model(3, 2);
  OptimizerPtr optimizer = MakeAdamW(model->parameters());
  const StateDict state = {
      {"state",
       StateDict({{"weight", StateDict({{"exp_avg", torch::zeros({3})},
                                        {"other", torch::zeros({3})}})},
                  {"stranger", StateDict()}})},
      {"param_groups",
       StateList{StateDict({{"lr", "fast"},
                            {"maximize", true},
                            {"params", StateList{"weight"}}})}}};
  EXPECT_THAT(
      set_optimizer_state_dict(*model, *optimizer, state),
      StatusIs(
          StatusCode::kInvalidArgument,
          AllOf(HasSubstr("missing: param_groups.bias, state.weight.step, "
                          "state.weight.exp_avg_sq, state.bias"),
                HasSubstr("unexpected: state.weight.other, state.stranger"),
                HasSubstr("param_groups[0].lr is a text, not a number"),
                HasSubstr("maximize is True, which this optimizer cannot do"),
                HasSubstr("state.weight.exp_avg has shape [3]"))));
  EXPECT_TRUE(optimizer->state().empty());
  EXPECT_EQ(optimizer->param_groups()[0].options().get_lr(), 1e-2);
  EXPECT_THAT(set_optimizer_state_dict(*model, *optimizer, {{"x", 1}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("the key x")));
  EXPECT_THAT(set_optimizer_state_dict(*model, *optimizer, {}),
              StatusIs(StatusCode::kNotFound, HasSubstr("state.weight")));
  EXPECT_OK(
      set_optimizer_state_dict(*model, *optimizer, {}, {.strict = false}));
}

TEST(StateDictOfOptimizer, GroupsAreFoundByTheirNames) {
  torch::nn::Linear model(3, 2);
  const auto make = [&](bool weight_first, double weight_lr, double bias_lr) {
    const auto group = [](const torch::Tensor& parameter, double lr) {
      return torch::optim::OptimizerParamGroup(
          {parameter}, std::make_unique<torch::optim::AdamWOptions>(lr));
    };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    if (weight_first) groups.push_back(group(model->weight, weight_lr));
    groups.push_back(group(model->bias, bias_lr));
    if (!weight_first) groups.push_back(group(model->weight, weight_lr));
    return std::make_unique<torch::optim::AdamW>(groups);
  };
  const auto saved = make(true, 1, 2);
  const auto other = make(false, 0, 0);
  for (const bool flatten : {false, true}) {
    const auto state = get_optimizer_state_dict(
        *model, *saved, {.flatten_optimizer_state_dict = flatten});
    ASSERT_OK(set_optimizer_state_dict(*model, *other, *state));
    EXPECT_EQ(other->param_groups()[0].options().get_lr(), 2);
    EXPECT_EQ(other->param_groups()[1].options().get_lr(), 1);
    // In one group they would have to agree.
    OptimizerPtr together = MakeAdamW(model->parameters());
    EXPECT_THAT(set_optimizer_state_dict(*model, *together, *state),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("lr is 1.0 for some parameters")));
  }
}

// Rank 0 has it all; the others begin with nothing.
TEST(StateDictFromRank0, ReachesModelsAndOptimizersOnAnyMesh) {
  const std::vector<std::vector<int64_t>> meshes = {{2}, {3}, {2, 2}};
  for (const auto& mesh : meshes) {
    const int world = static_cast<int>(mesh.size() == 1 ? mesh[0] : 4);
    RunRanks(world, [mesh, world] {
      init_process_group();
      const int64_t rank = get_rank();
      TinyModel trained = MakeModel(20);
      OptimizerPtr trained_optimizer = MakeAdamW(trained->parameters());
      for (int64_t step = 0; step < 2; ++step) {
        TrainStep(trained, *trained_optimizer, step, 0, 1);
      }
      const auto states = get_state_dict(*trained, *trained_optimizer);
      ASSERT_OK(states.status());

      TinyModel model = [] {
        const MetaDeviceGuard meta;
        return MakeModel(21);
      }();
      ShardModel(model, mesh);
      OptimizerPtr optimizer = MakeAdamW(model->parameters());
      const StateDictOptions options = {.full_state_dict = true,
                                        .broadcast_from_rank0 = true,
                                        .window_bytes = 1};
      const StateDict none;
      EXPECT_THAT(set_model_state_dict(*model, rank == 0 ? states->first : none,
                                       options),
                  StatusIs(StatusCode::kInvalidArgument,
                           HasSubstr("call fsdp::to_empty first")));
      to_empty(model, c10::kCPU);
      optimizer = MakeAdamW(model->parameters());
      const auto keys =
          set_state_dict(*model, *optimizer, rank == 0 ? states->first : none,
                         rank == 0 ? states->second : none, options);
      ASSERT_OK(keys.status());
      ExpectSame(states->first, *get_model_state_dict(*model), "model");
      ExpectSame(states->second, *get_optimizer_state_dict(*model, *optimizer),
                 "optimizer");

      // Rank 0's mistakes are known to all.
      StateDict wrong = states->first;
      wrong.erase("norm.bias");
      EXPECT_THAT(
          set_model_state_dict(*model, rank == 0 ? wrong : none, options),
          StatusIs(StatusCode::kNotFound, HasSubstr("norm.bias")));
      StateDictOptions lenient = options;
      lenient.strict = false;
      const auto missing =
          set_model_state_dict(*model, rank == 0 ? wrong : none, lenient);
      ASSERT_OK(missing.status());
      EXPECT_THAT(missing->missing_keys, ElementsAre("norm.bias"));
      wrong = *get_model_state_dict(*model);
      EXPECT_THAT(
          set_model_state_dict(*model, rank == 0 ? wrong : none, options),
          StatusIs(StatusCode::kInvalidArgument,
                   AllOf(HasSubstr("rank 0"), HasSubstr("is a DTensor"))));
    });
  }
}

TEST(StateDictFromRank0, ReachesModelsThatAreNotSharded) {
  RunRanks(2, [] {
    init_process_group();
    torch::manual_seed(static_cast<uint64_t>(get_rank()));
    torch::nn::Linear model(300, 200);
    const StateDict state = {{"weight", torch::full({200, 300}, 3.0)},
                             {"bias", torch::full({200}, 4.0)}};
    ASSERT_OK(set_model_state_dict(*model,
                                   get_rank() == 0 ? state : StateDict(),
                                   {.full_state_dict = true,
                                    .broadcast_from_rank0 = true,
                                    .window_bytes = 100000})
                  .status());
    EXPECT_TRUE(torch::equal(model->weight, torch::full({200, 300}, 3.0)));
    EXPECT_TRUE(torch::equal(model->bias, torch::full({200}, 4.0)));
  });
}

}  // namespace
}  // namespace fsdp
