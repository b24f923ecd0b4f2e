// SPDX-License-Identifier: Apache-2.0
// The engine on the simulated device: every way to shard, gather, reduce and
// accumulate has the CPU's numbers, no race, even memory, and only the host
// waits that the recipe lists.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fsdp/sim/recipe_parts.h"
#include "tests/fsdp/sim/training.h"
#include "tests/testing/ranks.h"

namespace fsdp::testing {
namespace {

using HostWaits = std::map<std::string, int64_t>;

// The optimizer reads offloaded gradients on the CPU: a wait for each group,
// when backward ends.
const HostWaits kOffloadWaits{{"an event", 4}};

// --- The recipes -----------------------------------------------------------

void AddForEachRankCount(std::vector<Recipe>& all) {
  for (const int ranks : {1, 2, 4}) {
    const std::string on = "On" + std::to_string(ranks);
    all.push_back({.name = "Float32" + on, .num_ranks = ranks});
    all.push_back({.name = "Bfloat16" + on,
                   .num_ranks = ranks,
                   .options = {.mp_policy = kBfloat16}});
    all.push_back({.name = "Offload" + on,
                   .num_ranks = ranks,
                   .options = {.offload_policy = CPUOffloadPolicy{}},
                   .host_waits = kOffloadWaits});
  }
}

void AddForms(std::vector<Recipe>& all) {
  all.push_back({.name = "Bfloat16Offload",
                 .options = {.mp_policy = kBfloat16,
                             .offload_policy = CPUOffloadPolicy{}},
                 .host_waits = kOffloadWaits});
  all.push_back({.name = "Float16WithAScaler",
                 .options = {.mp_policy = kFloat16},
                 .clips = true,
                 .scales = true,
                 .host_waits = HostWaits{{"copy to host", 1}}});
  all.push_back(
      {.name = "Float8",
       .options = {.mp_policy = kBfloat16, .all_gather_extension_fn = Float8}});
  all.push_back({.name = "Nf4",
                 .options = {.all_gather_extension_fn = Nf4},
                 .change = FreezeTheBlocks});
  all.push_back({.name = "Nf4Gathered",
                 .options = {.all_gather_extension_fn = Nf4Gather},
                 .change = FreezeTheBlocks});
  all.push_back({.name = "ToDouble", .is_double = true, .prepare = ToDouble});
  all.push_back(
      {.name = "LastDim", .options = {.shard_placement_fn = OnTheLastDim}});
}

void AddGathers(std::vector<Recipe>& all) {
  all.push_back({.name = "Kept", .options = {.reshard_after_forward = false}});
  all.push_back(
      {.name = "KeptInBfloat16",
       .options = {.reshard_after_forward = false, .mp_policy = kBfloat16}});
  all.push_back({.name = "ReshardedToTwo",
                 .num_ranks = 4,
                 .options = {.reshard_after_forward = 2}});
  all.push_back(
      {.name = "ReshardedToTwoInBfloat16",
       .num_ranks = 4,
       .options = {.reshard_after_forward = 2, .mp_policy = kBfloat16}});
  all.push_back({.name = "Prefetched", .prepare = PrefetchTheNext});
  all.push_back({.name = "PrefetchedInBfloat16",
                 .options = {.mp_policy = kBfloat16},
                 .prepare = PrefetchTheNext});
  all.push_back({.name = "GatheredByHand",
                 .options = {.mp_policy = kBfloat16},
                 .before_step = GatherByHand});
  all.push_back({.name = "CustomCollectives",
                 .options = {.mp_policy = kBfloat16},
                 .prepare = SetCustomCollectives});
  all.push_back({.name = "MemoryOfTheProcessGroup",
                 .options = {.mp_policy = kBfloat16},
                 .prepare = [](Training& training) {
                   for (FSDPModule& block : training.blocks) {
                     block.set_allocate_memory_from_process_group_for_comm(
                         training.is_on_device());
                   }
                 }});
}

void AddHsdp(std::vector<Recipe>& all) {
  for (const int ranks : {2, 4}) {
    const std::string on = "On" + std::to_string(ranks);
    for (const bool low : {false, true}) {
      const std::string in = low ? "InBfloat16" : "";
      const FullyShardOptions options{
          .mp_policy = low ? kBfloat16 : MixedPrecisionPolicy{}};
      all.push_back({.name = "Hsdp" + in + on,
                     .num_ranks = ranks,
                     .num_replicas = 2,
                     .options = options});
      all.push_back({.name = "HsdpAccumulates" + in + on,
                     .num_ranks = ranks,
                     .num_replicas = 2,
                     .options = options,
                     .num_microbatches = 3,
                     .postponed = Postponed::kAllReduce});
    }
    all.push_back({.name = "HsdpAccumulatesDifferentParameters" + on,
                   .num_ranks = ranks,
                   .num_replicas = 2,
                   .num_microbatches = 3,
                   .postponed = Postponed::kAllReduce,
                   .forward = SkipBlock});
    all.push_back({.name = "HsdpAccumulatesAPartOfAGroup" + on,
                   .num_ranks = ranks,
                   .num_replicas = 2,
                   .num_microbatches = 2,
                   .postponed = Postponed::kAllReduce,
                   .forward = UsePartOfBlock});
  }
}

void AddCopies(std::vector<Recipe>& all) {
  for (const int ranks : {1, 2, 4}) {
    for (const bool low : {false, true}) {
      const FullyShardOptions options{
          .mp_policy = low ? kBfloat16 : MixedPrecisionPolicy{}};
      const std::string on =
          std::string(low ? "InBfloat16" : "") + "On" + std::to_string(ranks);
      all.push_back({.name = "Copies" + on,
                     .num_ranks = ranks,
                     .replicates = true,
                     .options = options,
                     .clips = true});
      all.push_back({.name = "CopiesAccumulate" + on,
                     .num_ranks = ranks,
                     .replicates = true,
                     .options = options,
                     .num_microbatches = 3,
                     .postponed = Postponed::kAllReduce});
    }
  }
  all.push_back({.name = "CopiesOffload",
                 .replicates = true,
                 .options = {.offload_policy = CPUOffloadPolicy{}},
                 .host_waits = kOffloadWaits});
}

void AddAccumulations(std::vector<Recipe>& all) {
  all.push_back({.name = "HsdpInFloat16",
                 .num_ranks = 4,
                 .num_replicas = 2,
                 .options = {.mp_policy = kFloat16}});
  all.push_back({.name = "HsdpRunsTwice",
                 .num_ranks = 4,
                 .num_replicas = 2,
                 .options = {.mp_policy = kBfloat16},
                 .change = Checkpoint,
                 .forward = RunTwice});
  all.push_back({.name = "Accumulates",
                 .num_microbatches = 3,
                 .postponed = Postponed::kReduction});
  all.push_back({.name = "AccumulatesInBfloat16",
                 .options = {.mp_policy = kBfloat16},
                 .num_microbatches = 3,
                 .postponed = Postponed::kReduction});
  all.push_back({.name = "ReducesEachMicrobatch",
                 .options = {.mp_policy = kBfloat16},
                 .num_microbatches = 3});
}

void AddReductionSettings(std::vector<Recipe>& all) {
  all.push_back({.name = "Hook", .prepare = HookTheReduction});
  all.push_back({.name = "HookOnAStream",
                 .options = {.mp_policy = kFloat16},
                 .prepare = HookTheReductionOnAStream});
  all.push_back({.name = "HsdpHook",
                 .num_ranks = 4,
                 .num_replicas = 2,
                 .prepare = HookTheReduction});
  all.push_back({.name = "DividedByAFactor", .prepare = [](Training& training) {
                   training.root.set_gradient_divide_factor(3);
                 }});
  all.push_back({.name = "ForcedSums", .prepare = [](Training& training) {
                   training.root.set_force_sum_reduction_for_comms(true);
                 }});
  all.push_back({.name = "KeptAfterBackward",
                 .options = {.mp_policy = kBfloat16},
                 .prepare = [](Training& training) {
                   training.root.set_reshard_after_backward(false);
                 }});
  all.push_back({.name = "MissingGradientsAreZero",
                 .num_microbatches = 2,
                 .prepare =
                     [](Training& training) {
                       training.root.set_reduce_scatter_unused_params(true);
                     },
                 .forward = SkipBlock});
}

void KeepStorage(Training& training) {
  training.root.set_keep_unsharded_storage(true);
}

void AllowThreeInputs(Training& training) {
  training.root.set_reduce_scatter_max_input_buffers(3);
}

void ReduceElsewhere(Training& training) {
  training.root.set_separate_reduce_scatter_group(true);
}

void SetAllSwitches(Training& training) {
  KeepStorage(training);
  AllowThreeInputs(training);
  ReduceElsewhere(training);
}

void AddSwitches(std::vector<Recipe>& all) {
  const std::vector<std::pair<std::string, void (*)(Training&)>> switches = {
      {"KeepsStorage", KeepStorage},
      {"ThreeInputs", AllowThreeInputs},
      {"ReducesElsewhere", ReduceElsewhere},
      {"AllSwitches", SetAllSwitches}};
  for (const auto& [name, prepare] : switches) {
    all.push_back({.name = name, .prepare = prepare});
    all.push_back({.name = name + "InBfloat16",
                   .options = {.mp_policy = kBfloat16},
                   .change = Checkpoint,
                   .prepare = prepare});
    all.push_back({.name = name + "Hsdp",
                   .num_ranks = 4,
                   .num_replicas = 2,
                   .options = {.mp_policy = kBfloat16},
                   .num_microbatches = 2,
                   .postponed = Postponed::kAllReduce,
                   .prepare = prepare});
  }
  all.push_back({.name = "AllSwitchesOffload",
                 .options = {.offload_policy = CPUOffloadPolicy{}},
                 .prepare = SetAllSwitches,
                 .host_waits = kOffloadWaits});
  all.push_back({.name = "AllSwitchesWithAFailingBackward",
                 .prepare = SetAllSwitches,
                 .before_step = FailInABackward,
                 .has_even_memory = false});
  all.push_back({.name = "AllSwitchesResharded",
                 .num_ranks = 4,
                 .options = {.reshard_after_forward = 2},
                 .prepare = SetAllSwitches});
}

// The same by hand, between other work on the device.
void Finalize(Training& training) {
  training.root.set_requires_gradient_sync(true);
  GradientReductionHandle handle =
      training.root.finalize_backward(/*async=*/true);
  const torch::Tensor x = torch::ones({16, NetImpl::kIn}, training.device);
  EXPECT_EQ((x + x).size(0), 16);
  handle.wait();
}

void FailAndReset(Training& training) {
  FailInABackward(training);
  FailInAForward(training);
  training.root.reset_iter_state();
}

void FinalizeByHand(Training& training) {
  training.root.set_manual_backward_finalization(true);
}

void FinalizeByHandWithAllSwitches(Training& training) {
  FinalizeByHand(training);
  SetAllSwitches(training);
}

void AddFinalization(std::vector<Recipe>& all) {
  const auto add = [&all](Recipe recipe) {
    recipe.name = "FinalizedByHand" + recipe.name;
    if (!recipe.prepare) recipe.prepare = FinalizeByHand;
    recipe.before_optimizer = Finalize;
    all.push_back(std::move(recipe));
  };
  for (const int ranks : {1, 2, 4}) {
    add({.name = "On" + std::to_string(ranks),
         .num_ranks = ranks,
         .num_microbatches = 2,
         .postponed = Postponed::kReduction});
    add({.name = "EachMicrobatchOn" + std::to_string(ranks),
         .num_ranks = ranks,
         .options = {.mp_policy = kBfloat16},
         .num_microbatches = 3,
         .prepare = FinalizeByHandWithAllSwitches});
  }
  for (const int ranks : {2, 4}) {
    add({.name = "HsdpOn" + std::to_string(ranks),
         .num_ranks = ranks,
         .num_replicas = 2,
         .options = {.mp_policy = kBfloat16},
         .num_microbatches = 2});
  }
  add({.name = "Offload",
       .options = {.offload_policy = CPUOffloadPolicy{}},
       .host_waits = kOffloadWaits});
  add({.name = "Checkpointed",
       .options = {.reshard_after_forward = false},
       .change = Checkpoint});
  add({.name = "AfterAReset",
       .options = {.mp_policy = kBfloat16},
       .num_microbatches = 2,
       .prepare = FinalizeByHandWithAllSwitches,
       .before_step = FailAndReset,
       .has_even_memory = false});
  all.push_back({.name = "Reset",
                 .num_ranks = 4,
                 .num_replicas = 2,
                 .num_microbatches = 2,
                 .postponed = Postponed::kAllReduce,
                 .before_step = FailAndReset,
                 .has_even_memory = false});
}

// Gradients are reduced, and accumulate, in the dtype of their parameters.
void AddDtypes(std::vector<Recipe>& all) {
  for (const int ranks : {1, 2, 4}) {
    all.push_back({.name = "ReducesAsShardsOn" + std::to_string(ranks),
                   .num_ranks = ranks,
                   .options = {.mp_policy = {.param_dtype = at::kBFloat16}},
                   .num_microbatches = 2,
                   .postponed = Postponed::kReduction});
  }
}

void AddModels(std::vector<Recipe>& all) {
  all.push_back({.name = "Checkpointed", .change = Checkpoint});
  all.push_back({.name = "CheckpointedInBfloat16",
                 .options = {.mp_policy = kBfloat16},
                 .change = Checkpoint});
  all.push_back({.name = "FrozenStem", .change = FreezeTheStem});
  all.push_back({.name = "TiedWeights",
                 .options = {.mp_policy = kBfloat16},
                 .change = AddStemTwin});
  all.push_back({.name = "LowRankAdapters",
                 .options = {.mp_policy = kBfloat16},
                 .change = AddAdapters});
  all.push_back({.name = "RunsTwice",
                 .options = {.mp_policy = kBfloat16},
                 .forward = RunTwice});
  all.push_back({.name = "OffloadsActivations", .forward = OffloadActivations});
}

void AddBetweenSteps(std::vector<Recipe>& all) {
  all.push_back({.name = "ShardsAreScaled", .before_step = ScaleShards});
  all.push_back({.name = "ShardsAreReplaced",
                 .options = {.mp_policy = kBfloat16},
                 .before_step = ReplaceShards});
  all.push_back({.name = "DropsGathers",
                 .options = {.mp_policy = kBfloat16},
                 .before_step = WriteWhileGathering});
  all.push_back({.name = "DataIsScaled", .before_step = ScaleData});
  all.push_back({.name = "EntersElsewhere",
                 .options = {.mp_policy = kBfloat16},
                 .forward = EnterElsewhere});
  all.push_back({.name = "DataIsScaledInAForward",
                 .options = {.mp_policy = kBfloat16},
                 .forward = ScaleDataInAForward});
  all.push_back({.name = "GathersAfterAnEvent", .before_step = RecordAnEvent});
  all.push_back({.name = "AForwardFails",
                 .options = {.mp_policy = kBfloat16},
                 .before_step = FailInAForward,
                 .has_even_memory = false});
  all.push_back({.name = "ABackwardFails",
                 .options = {.mp_policy = kBfloat16},
                 .before_step = FailInABackward,
                 .has_even_memory = false});
}

void AddOptimizers(std::vector<Recipe>& all) {
  all.push_back({.name = "FusedAdamWAndClipping",
                 .options = {.mp_policy = kBfloat16},
                 .optimizer = Optimizer::kFusedAdamW,
                 .clips = true});
  all.push_back(
      {.name = "HsdpClips", .num_ranks = 4, .num_replicas = 2, .clips = true});
  all.push_back({.name = "Lbfgs",
                 .optimizer = Optimizer::kLbfgs,
                 .is_double = true,
                 .prepare = ToDouble,
                 .host_waits = std::nullopt,
                 .has_even_memory = false,
                 .tolerance = 1e-4});
}

std::vector<Recipe> Recipes() {
  std::vector<Recipe> all;
  AddForEachRankCount(all);
  AddForms(all);
  AddGathers(all);
  AddHsdp(all);
  AddCopies(all);
  AddAccumulations(all);
  AddReductionSettings(all);
  AddSwitches(all);
  AddFinalization(all);
  AddDtypes(all);
  AddModels(all);
  AddBetweenSteps(all);
  AddOptimizers(all);
  return all;
}

class SimEngine : public ::testing::TestWithParam<Recipe> {};

TEST_P(SimEngine, TrainsAsOnTheCpu) {
  RunRanks(GetParam().num_ranks, [] { ExpectTrainsAsOnTheCpu(GetParam()); });
}

INSTANTIATE_TEST_SUITE_P(Recipes, SimEngine, ::testing::ValuesIn(Recipes()),
                         [](const auto& recipe) { return recipe.param.name; });

}  // namespace
}  // namespace fsdp::testing
