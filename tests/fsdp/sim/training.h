// SPDX-License-Identifier: Apache-2.0
// Trains a small model under fully_shard on the simulated device and on the
// CPU, and compares. For the ranks of RunRanks.
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

// A stem, blocks with a residual, and a head. Its sizes are not multiples of
// the number of ranks, so that shards have padding.
struct NetImpl : torch::nn::Module {
  static constexpr int64_t kIn = 8;
  static constexpr int64_t kDim = 30;

  NetImpl();
  // Freezes the blocks and gives each one low-rank weights that are trained.
  void AddAdapters();
  // Adds another layer to the stem, with the same weight.
  void AddATwinOfTheStem();
  torch::Tensor forward(const torch::Tensor& x);
  torch::Tensor Body(torch::Tensor h);
  torch::Tensor Head(const torch::Tensor& h) { return head(h); }

  torch::nn::Linear stem{nullptr}, twin{nullptr}, head{nullptr};
  std::vector<torch::nn::Sequential> blocks;
  std::vector<torch::nn::Sequential> adapters;  // next to blocks; may be empty
  bool checkpoints = false;  // computes blocks again in backward
};
TORCH_MODULE(Net);

// A model on its device, sharded.
struct Training {
  Net net;
  FSDPModule root;
  std::vector<FSDPModule> blocks;
  torch::Device device;
  int64_t step = 0;
  int64_t microbatch = 0;  // of the step

  bool is_on_device() const { return device.is_cuda(); }
};

// What is postponed until the last microbatch of a step.
enum class Postponed { kNothing, kReduction, kAllReduce };

enum class Optimizer { kAdamW, kFusedAdamW, kLbfgs };

struct Recipe {
  std::string name;
  int num_ranks = 2;
  int64_t num_replicas = 1;
  FullyShardOptions options = {};
  int64_t num_microbatches = 1;
  Postponed postponed = Postponed::kNothing;
  Optimizer optimizer = Optimizer::kAdamW;
  bool clips = false;
  bool scales = false;  // the loss, for float16
  bool is_double = false;
  // On the model before it is sharded; on the sharded one; before each step,
  // and before its optimizer changes the shards; in place of a forward and
  // backward of `x`, of which it returns the loss.
  std::function<void(Net& net)> change = {};
  std::function<void(Training& training)> prepare = {};
  std::function<void(Training& training)> before_step = {};
  std::function<void(Training& training)> before_optimizer = {};
  std::function<torch::Tensor(Training& training, const torch::Tensor& x)>
      forward = {};
  // How often the host waits in a step, by reason; absent where the numbers
  // decide.
  std::optional<std::map<std::string, int64_t>> host_waits =
      std::map<std::string, int64_t>();
  // Whether the most memory of each step from the third on is the same.
  bool has_even_memory = true;
  // Of losses and parameters; absent: what rounding in the precision allows.
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
