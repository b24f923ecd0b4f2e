// SPDX-License-Identifier: Apache-2.0
// Saving and loading on the simulated device while training goes on. A
// checkpoint must equal the CPU's at the same step, and the next forward must
// gather the values that a load has written.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/async_saver.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "gtest/gtest.h"
#include "tests/fsdp/sim/training.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"

namespace fsdp::testing {
namespace {

std::string CheckpointPath(const Training& training) {
  return absl::StrCat(SharedDir(), training.is_on_device() ? "/cuda-" : "/cpu-",
                      training.step);
}

StateDict ModelState(const Training& training) {
  absl::StatusOr<StateDict> state = get_model_state_dict(*training.net);
  EXPECT_OK(state);
  return *std::move(state);
}

// A checkpoint's whole tensors.
std::map<std::string, at::Tensor> Loaded(const std::string& path) {
  Net net;
  std::map<std::string, at::Tensor> loaded;
  StateDict state;
  for (const auto& item : net->named_parameters()) {
    loaded[item.key()] = at::zeros_like(item.value()).detach();
    state[item.key()] = loaded[item.key()];
  }
  EXPECT_OK(load(state, path));
  return loaded;
}

void ExpectEqualCheckpoints(const std::string& cpu, const std::string& device,
                            double tolerance) {
  const std::map<std::string, at::Tensor> want = Loaded(cpu);
  for (const auto& [name, value] : Loaded(device)) {
    EXPECT_LE((value - want.at(name)).abs().max().item<double>(), tolerance)
        << name << " of " << device;
  }
}

void SaveEachStep(const FullyShardOptions& options, double tolerance) {
  AsyncSaver saver;
  std::map<std::string, std::vector<std::string>> paths;  // by device type
  std::vector<SaveHandle> saves;
  ExpectTrainsAsOnTheCpu(
      {.name = "SavesEachStep",
       .options = options,
       .before_step =
           [&](Training& training) {
             const std::string path = CheckpointPath(training);
             absl::StatusOr<SaveHandle> save =
                 saver.save(ModelState(training), path);
             ASSERT_OK(save);
             saves.push_back(*std::move(save));
             paths[training.is_on_device() ? "cuda" : "cpu"].push_back(path);
           },
       // From here on the shards may change.
       .before_optimizer =
           [&](Training& /*training*/) {
             EXPECT_OK(saves.back().wait_staged());
           },
       .host_waits = std::nullopt});
  for (SaveHandle& save : saves) EXPECT_OK(save.wait());
  WaitForAllRanks();
  ASSERT_EQ(paths["cpu"].size(), paths["cuda"].size());
  for (size_t i = 0; i < paths["cpu"].size(); ++i) {
    ExpectEqualCheckpoints(paths["cpu"][i], paths["cuda"][i], tolerance);
  }
}

TEST(SimCheckpoint, SavesWhileTrainingGoesOn) {
  RunRanks(2, [] { SaveEachStep({}, 1e-5); });
}

TEST(SimCheckpoint, SavesOffloadedShardsWhileTrainingGoesOn) {
  RunRanks(2,
           [] { SaveEachStep({.offload_policy = CPUOffloadPolicy{}}, 1e-5); });
}

TEST(SimCheckpoint, SavesPartsOfTheLastDimension) {
  RunRanks(2, [] {
    SaveEachStep({.shard_placement_fn =
                      [](const at::Tensor& parameter) -> std::optional<Shard> {
                   if (parameter.dim() == 2) return Shard(1);
                   return std::nullopt;
                 }},
                 1e-5);
  });
}

// Goes back to the first step's weights before the third, and again, through
// rank 0, before the fifth.
TEST(SimCheckpoint, LoadsBetweenSteps) {
  RunRanks(2, [] {
    ExpectTrainsAsOnTheCpu(
        {.name = "LoadsBetweenSteps",
         .options = {.mp_policy = {.param_dtype = at::kBFloat16,
                                   .reduce_dtype = at::kFloat}},
         .before_step =
             [](Training& training) {
               const std::string path = absl::StrCat(
                   SharedDir(), "/", training.is_on_device() ? "cuda" : "cpu");
               StateDict state = ModelState(training);
               if (training.step == 0) {
                 ASSERT_OK(save(state, path));
               } else if (training.step == 2) {
                 ASSERT_OK(load(state, path));
               } else if (training.step == 4) {
                 ASSERT_OK(load_from_rank0(state, path));
               }
             },
         .host_waits = std::nullopt,
         .has_even_memory = false});
  });
}

}  // namespace
}  // namespace fsdp::testing
