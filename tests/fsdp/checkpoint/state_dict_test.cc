// SPDX-License-Identifier: Apache-2.0
// State dicts of whole and sharded models: names, the memory that values alias,
// and the parts that rank 0 sends to the others.
#include "fsdp/checkpoint/state_dict.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/materialize.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/state_dict_cases.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/torch.h"

namespace fsdp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::fsdp::testing::ExpectSame;
using ::fsdp::testing::kBatch;
using ::fsdp::testing::ListKeys;
using ::fsdp::testing::MakeAdamW;
using ::fsdp::testing::MakeModel;
using ::fsdp::testing::OptimizerPtr;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::ShardModel;
using ::fsdp::testing::TinyModel;
using ::fsdp::testing::TrainStep;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StateDictOfModel, HasTheNamesAndTheOrderOfPython) {
  torch::nn::Sequential model(
      torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2),
      torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
  const auto state = get_model_state_dict(*model);
  ASSERT_OK(state.status());
  EXPECT_THAT(
      ListKeys(*state),
      ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                  "1.running_var", "1.num_batches_tracked", "2.weight"));
  EXPECT_TRUE(state->find("0.weight")
                  ->get_if<at::Tensor>()
                  ->is_alias_of(model->parameters()[0]));
}

TEST(StateDictOfModel, TiedParametersHaveEveryNameAndLoadFromAny) {
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
  EXPECT_THAT(ListKeys(*state), ElementsAre("1.weight", "1.bias"));
}

TEST(StateDictOfModel, SubmodulesWithAndWithoutTheirPrefix) {
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::Linear(2, 2));
  StateDictOptions options;
  options.submodules = {model[1].get()};
  EXPECT_THAT(ListKeys(*get_model_state_dict(*model, options)),
              ElementsAre("1.weight", "1.bias"));
  options.keep_submodule_prefixes = false;
  const auto state = get_model_state_dict(*model, options);
  EXPECT_THAT(ListKeys(*state), ElementsAre("weight", "bias"));
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

TEST(StateDictOfModel, ListsAllErrorsAndChangesNothing) {
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
                HasSubstr("0.bias has shape [3], but [2] is expected"),
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

TEST(StateDictOfModel, CastsValuesIntoTheExistingTensors) {
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

// Shards alias, whole tensors equal the original model's, and offload puts them
// where the options say.
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

TEST(StateDictOfShardedModel, SetsShardsAndRefreshesGatheredParameters) {
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
    // DTensors from another model on the same mesh.
    ASSERT_OK(
        set_model_state_dict(*model, *get_model_state_dict(*source)).status());
    EXPECT_EQ(fsdp::testing::TinyLoss(model, batch).item<float>(),
              fsdp::testing::TinyLoss(reference, batch).item<float>());
    // With other placements.
    StateDict replicated = *get_model_state_dict(*source);
    for (auto& [name, value] : replicated) {
      value = value.get_if<DTensor>()->redistribute({Replicate()});
    }
    TinyModel again = MakeModel(6);
    ShardModel(again, {2});
    ASSERT_OK(set_model_state_dict(*again, replicated).status());
    ExpectSame(*get_model_state_dict(*reference), *get_model_state_dict(*again),
               "again");
    // Whole tensors are accepted only on request.
    EXPECT_THAT(set_model_state_dict(*again, *get_model_state_dict(*reference)),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("require full_state_dict")));
  });
}

TEST(StateDictOfShardedModel, OneRanksErrorFailsAll) {
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
    // The next call works as usual.
    state = *get_model_state_dict(*MakeModel(8));
    EXPECT_OK(set_model_state_dict(*model, state, {.full_state_dict = true})
                  .status());

    // When getting: one rank's optimizer does not belong to this module.
    OptimizerPtr optimizer = MakeAdamW(
        get_rank() == 2 ? std::vector{torch::ones({1}).requires_grad_()}
                        : model->parameters());
    EXPECT_THAT(
        get_optimizer_state_dict(*model, *optimizer, {.full_state_dict = true}),
        StatusIs(
            StatusCode::kInvalidArgument,
            AllOf(HasSubstr("rank 2"), HasSubstr("is not a parameter of"))));
  });
}

// Rank 0 has everything; the others begin with nothing.
TEST(StateDictFromRank0, ReachesModelsAndOptimizersOnAnyMesh) {
  const std::vector<std::vector<int64_t>> meshes = {{2}, {3}, {2, 2}};
  for (const auto& mesh : meshes) {
    const int world = static_cast<int>(mesh.size() == 1 ? mesh[0] : 4);
    RunRanks(world, [mesh] {
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

      // All ranks learn of rank 0's mistakes.
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
