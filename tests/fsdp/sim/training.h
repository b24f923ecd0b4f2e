// SPDX-License-Identifier: Apache-2.0
// Trains a small model under fully_shard on the simulated device and on the
// CPU, and compares. For ranks in RunRanks.
#ifndef TESTS_FSDP_SIM_TRAINING_H_
#define TESTS_FSDP_SIM_TRAINING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "fsdp/engine/fully_shard_options.h"
#include "fsdp/fully_shard.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {

// A stem, blocks with a residual, and a head. Sizes are not multiples of the
// rank count, so that shards have padding.
struct NetImpl : torch::nn::Module {
  static constexpr int64_t kIn = 8;
  static constexpr int64_t kDim = 30;

  NetImpl();
  // Freezes the blocks and gives each one low-rank weights that are trained.
  void AddAdapters();
  // Adds another layer to the stem, with the same weight.
  void AddStemTwin();
  torch::Tensor forward(const torch::Tensor& x);
  torch::Tensor Body(torch::Tensor h);
  torch::Tensor Head(const torch::Tensor& h) { return head(h); }

  torch::nn::Linear stem{nullptr}, twin{nullptr}, head{nullptr};
  std::vector<torch::nn::Sequential> blocks;
  std::vector<torch::nn::Sequential> adapters;  // next to blocks; may be empty
  bool checkpoints = false;  // computes blocks again in backward
};
TORCH_MODULE(Net);

// A sharded model on a device.
struct Training {
  Net net;
  FSDPModule root;
  std::vector<FSDPModule> blocks;
  torch::Device device;
  int64_t step = 0;
  int64_t microbatch = 0;  // in the step

  bool is_on_device() const { return device.is_cuda(); }
};

// The work that is postponed until a step's last microbatch.
enum class Postponed { kNothing, kReduction, kAllReduce };

enum class Optimizer { kAdamW, kFusedAdamW, kLbfgs };

struct Recipe {
  std::string name;
  int num_ranks = 2;
  int64_t num_replicas = 1;
  bool replicates = false;  // all: by replicate
  FullyShardOptions options = {};
  int64_t num_microbatches = 1;
  Postponed postponed = Postponed::kNothing;
  Optimizer optimizer = Optimizer::kAdamW;
  bool clips = false;
  bool scales = false;  // the loss, for float16
  bool is_double = false;
  // Called before the model is sharded.
  std::function<void(Net& net)> change = {};
  // Called once the model is sharded.
  std::function<void(Training& training)> prepare = {};
  std::function<void(Training& training)> before_step = {};
  // Called before the optimizer changes the shards.
  std::function<void(Training& training)> before_optimizer = {};
  // Called in place of the forward and backward on `x`; returns the loss.
  std::function<torch::Tensor(Training& training, const torch::Tensor& x)>
      forward = {};
  // How often the host waits in a step, by reason; absent where the numbers
  // decide.
  std::optional<std::map<std::string, int64_t>> host_waits =
      std::map<std::string, int64_t>();
  // Whether peak memory is the same in each step from the third on.
  bool has_even_memory = true;
  // For losses and parameters; absent: the rounding that the precision allows.
  std::optional<double> tolerance = {};
};

inline std::ostream& operator<<(std::ostream& out, const Recipe& recipe) {
  return out << recipe.name;
}

// Trains as the recipe says on both devices, and expects the same losses and
// parameters, no race, and the waits and memory that the recipe promises.
// Called by each rank.
void ExpectTrainsAsOnTheCpu(const Recipe& recipe);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_SIM_TRAINING_H_
