// SPDX-License-Identifier: Apache-2.0
// Random combinations of the recipes' parts.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fsdp/sim/recipe_parts.h"
#include "tests/fsdp/sim/training.h"
#include "tests/testing/ranks.h"

namespace fsdp::testing {
namespace {

class Chooser {
 public:
  explicit Chooser(uint64_t seed) : random_(seed) {}

  bool OneIn(int count) { return Below(count) == 0; }
  int Below(int count) {
    return std::uniform_int_distribution<int>(0, count - 1)(random_);
  }
  template <typename T>
  T Of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(
        Below(static_cast<int>(choices.size())))];
  }

 private:
  std::mt19937_64 random_;
};

FullyShardOptions RandomOptions(Chooser& choose, int64_t num_shards) {
  FullyShardOptions options;
  options.mp_policy =
      choose.Of<MixedPrecisionPolicy>({{}, kBfloat16, kFloat16});
  if (choose.OneIn(4)) options.offload_policy = CPUOffloadPolicy{};
  options.reshard_after_forward = choose.Of<ReshardAfterForward>(
      {{}, true, false, num_shards == 4 ? ReshardAfterForward(2) : true});
  if (num_shards == 2 && choose.OneIn(4)) {
    options.shard_placement_fn = OnTheLastDim;
  }
  if (choose.OneIn(4)) options.all_gather_extension_fn = Float8;
  return options;
}

Recipe RandomRecipe(uint64_t seed) {
  Chooser choose(seed);
  Recipe recipe{.name = "Random",
                .num_ranks = choose.Of<int>({2, 4}),
                .num_replicas = choose.Of<int64_t>({1, 2}),
                .num_microbatches = 1 + choose.Below(3),
                .clips = choose.OneIn(2),
                .host_waits = std::nullopt,
                .tolerance = 3e-2};
  recipe.options =
      RandomOptions(choose, recipe.num_ranks / recipe.num_replicas);
  const bool is_replicated = recipe.num_replicas > 1;
  recipe.postponed = choose.Of<Postponed>(
      {Postponed::kNothing, Postponed::kReduction,
       is_replicated ? Postponed::kAllReduce : Postponed::kNothing});
  recipe.optimizer =
      choose.Of<Optimizer>({Optimizer::kAdamW, Optimizer::kFusedAdamW});
  recipe.scales =
      recipe.options.mp_policy.param_dtype == at::kHalf && choose.OneIn(2);
  using Change = std::function<void(Net&)>;
  recipe.change = choose.Of<Change>(
      {{}, Checkpoint, FreezeTheStem, AddAdapters, AddStemTwin});
  using Act = std::function<void(Training&)>;
  recipe.prepare = choose.Of<Act>(
      {{},
       PrefetchTheNext,
       HookTheReduction,
       is_replicated ? Act(HookTheReduction) : Act(HookTheReductionOnAStream),
       SetCustomCollectives});
  recipe.before_step = choose.Of<Act>(
      {{}, ScaleShards, ReplaceShards, GatherByHand, WriteWhileGathering});
  using Forward = std::function<torch::Tensor(Training&, const torch::Tensor&)>;
  recipe.forward =
      choose.Of<Forward>({{}, RunTwice, EnterElsewhere, OffloadActivations});
  return recipe;
}

// Six random combinations. SIM_RECIPE=N repeats one.
TEST(SimEngineAtRandom, TrainsAsOnTheCpu) {
  for (int i = 0; i < 6; ++i) {
    const char* const given = std::getenv("SIM_RECIPE");
    const std::string seed =
        given != nullptr ? given : std::to_string(std::random_device()());
    SCOPED_TRACE("SIM_RECIPE=" + seed);
    const Recipe recipe = RandomRecipe(std::stoull(seed));
    RunRanks(recipe.num_ranks, [&] { ExpectTrainsAsOnTheCpu(recipe); },
             {.environment = {{"SIM_RECIPE", seed}}});
  }
}

}  // namespace
}  // namespace fsdp::testing
