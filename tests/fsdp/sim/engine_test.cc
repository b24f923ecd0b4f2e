// The engine on the simulated device: every way to shard, gather, reduce and
// accumulate has the CPU's numbers, no race, even memory, and no more waits of
// the host than it says.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "c10/core/Event.h"
#include "c10/core/StreamGuard.h"
#include "fsdp/extensions/float8.h"
#include "fsdp/extensions/nf4.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/activation_offload.h"
#include "gtest/gtest.h"
#include "tests/fsdp/sim/training.h"
#include "tests/testing/ranks.h"
#include "tests/testing/sim_device/sim_device.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace fsdp::testing {
namespace {

using HostWaits = std::map<std::string, int64_t>;

const MixedPrecisionPolicy kBfloat16{.param_dtype = at::kBFloat16,
                                     .reduce_dtype = at::kFloat};
const MixedPrecisionPolicy kFloat16{.param_dtype = at::kHalf,
                                    .reduce_dtype = at::kHalf};
// The optimizer reads offloaded gradients on the CPU: a wait for each group, at
// the end of backward.
const HostWaits kOffloadWaits{{"an event", 4}};

// --- Changes of the model --------------------------------------------------

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

void AddATwinOfTheStem(Net& net) { net->AddATwinOfTheStem(); }

// --- Changes of the sharded model ------------------------------------------

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

void Halve(at::Tensor gradients) { gradients.mul_(0.5); }

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

// --- Between steps ---------------------------------------------------------

void ScaleShards(Training& training) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& shard : training.net->parameters()) shard.mul_(1.01);
}

// As torch::load and set_data do.
void ReplaceShards(Training& training) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& shard : training.net->parameters()) {
    shard.set_data(shard * 1.01);
  }
}

// Through tensors of which the engine hears nothing.
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

// Every third step ends in the middle.
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

// --- Forwards --------------------------------------------------------------

// Evaluates, changes the shards, and begins the next forward elsewhere.
torch::Tensor EnterElsewhere(Training& training, const torch::Tensor& x) {
  {
    const torch::NoGradGuard no_grad;
    training.net->forward(x);
    for (torch::Tensor& shard : training.net->parameters()) shard.mul_(1.01);
    training.net->Body(torch::ones({16, NetImpl::kDim}, training.device));
  }
  return training.net->forward(x);
}

torch::Tensor RunTwice(Training& training, const torch::Tensor& x) {
  return training.net->forward(x) + training.net->forward(x.flip(0));
}

// Each microbatch leaves another block out.
torch::Tensor LeaveABlockOut(Training& training, const torch::Tensor& x) {
  torch::Tensor h = training.net->stem->forward(x);
  for (size_t i = 0; i < training.blocks.size(); ++i) {
    if (static_cast<int64_t>(i) == training.microbatch) continue;
    h = h + training.net->blocks[i]->forward(h);
  }
  return training.net->Head(h);
}

// Only the weight of a block's last layer, in the first microbatch.
torch::Tensor UseAPartOfABlock(Training& training, const torch::Tensor& x) {
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

// --- The recipes -----------------------------------------------------------

void AddToAllNumbersOfRanks(std::vector<Recipe>& all) {
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
                   .forward = LeaveABlockOut});
    all.push_back({.name = "HsdpAccumulatesAPartOfAGroup" + on,
                   .num_ranks = ranks,
                   .num_replicas = 2,
                   .num_microbatches = 2,
                   .postponed = Postponed::kAllReduce,
                   .forward = UseAPartOfABlock});
  }
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

void AddSettingsOfReductions(std::vector<Recipe>& all) {
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
                       training.root.set_zero_missing_gradients(true);
                     },
                 .forward = LeaveABlockOut});
}

void AddModels(std::vector<Recipe>& all) {
  all.push_back({.name = "Checkpointed", .change = Checkpoint});
  all.push_back({.name = "CheckpointedInBfloat16",
                 .options = {.mp_policy = kBfloat16},
                 .change = Checkpoint});
  all.push_back({.name = "FrozenStem", .change = FreezeTheStem});
  all.push_back({.name = "TiedWeights",
                 .options = {.mp_policy = kBfloat16},
                 .change = AddATwinOfTheStem});
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
  AddToAllNumbersOfRanks(all);
  AddForms(all);
  AddGathers(all);
  AddHsdp(all);
  AddAccumulations(all);
  AddSettingsOfReductions(all);
  AddModels(all);
  AddBetweenSteps(all);
  AddOptimizers(all);
  return all;
}

// --- At random ---------------------------------------------------------------

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
  recipe.scales = recipe.options.mp_policy == kFloat16 && choose.OneIn(2);
  using Change = std::function<void(Net&)>;
  recipe.change = choose.Of<Change>(
      {{}, Checkpoint, FreezeTheStem, AddAdapters, AddATwinOfTheStem});
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

// Six combinations, others each time. SIM_RECIPE=N tries one again.
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

// --- The host --------------------------------------------------------------

// As `srun --gpus-per-task=1` starts ranks.
TEST(SimHost, EachRankMaySeeOneDeviceOfItsOwn) {
  RunRanks(
      2, [] { ExpectTrainsAsOnTheCpu({.name = "OneDevice"}); },
      {.environment = {{"SIM_DEVICES", "1"}, {"CUDA_VISIBLE_DEVICES", "0"}}});
}

// The check of the order of collectives may not keep the hosts in step.
TEST(SimHost, ARankIssuesAForwardBeforeItsNeighbourBegins) {
  RunRanks(2, [] {
    init_process_group();
    Net net;
    const FullyShardOptions options{.mesh = init_device_mesh("cuda", {2})};
    for (torch::nn::Sequential& block : net->blocks) {
      fully_shard(block, options);
    }
    fully_shard(net, options);
    const torch::Tensor x =
        torch::ones({4, NetImpl::kIn}, options.mesh->device());
    // The first use of a communicator waits for all ranks.
    net->forward(x).sum().backward();
    if (get_rank() == 1) WaitForAllRanks();
    const torch::Tensor loss = net->forward(x).sum();
    if (get_rank() == 0) WaitForAllRanks();
    loss.backward();
    EXPECT_TRUE(std::isfinite(loss.item<double>()));
  });
}

class SimEngine : public ::testing::TestWithParam<Recipe> {};

TEST_P(SimEngine, TrainsAsOnTheCpu) {
  RunRanks(GetParam().num_ranks, [] { ExpectTrainsAsOnTheCpu(GetParam()); });
}

INSTANTIATE_TEST_SUITE_P(Recipes, SimEngine, ::testing::ValuesIn(Recipes()),
                         [](const auto& recipe) { return recipe.param.name; });

}  // namespace
}  // namespace fsdp::testing
