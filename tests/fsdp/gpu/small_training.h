// SPDX-License-Identifier: Apache-2.0
// Trains a small Llama on random tokens, the same in every run, with and
// without the feature that a step of gpu_steps checks. For the thread that
// trains.
#ifndef TESTS_FSDP_GPU_SMALL_TRAINING_H_
#define TESTS_FSDP_GPU_SMALL_TRAINING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/examples/train_llama/model.h"
#include "fsdp/fully_shard.h"
#include "tests/fsdp/gpu/check_device.h"
#include "torch/optim/optimizer.h"

namespace fsdp::testing {

struct SmallTrainingOptions {
  // Whether fully_shard is called; otherwise the model is a plain one.
  bool sharded = true;
  // Whether one rank makes collectives as several ranks do, with streams and
  // buffers. Otherwise it computes with the shards where they are.
  bool communicates = true;
  // Without a mesh: one rank. Otherwise each rank in the mesh has a part of the
  // batch, and `communicates` and `plan` do not apply.
  FullyShardOptions sharding = {};
  // A plan from tests/fsdp/parity/parallel.h, on an axis with one rank; empty:
  // none.
  std::string plan = {};
  int64_t batch = 4;
  // With HSDP they are reduced once across replicas.
  int64_t num_microbatches = 1;
  int64_t length = 64;
  llama::ModelOptions sizes = {.dim = 128, .num_layers = 3, .ffn_dim = 352};
};

class SmallTraining {
 public:
  // Initialises the default process group, with one rank, if there is no mesh
  // and no default group.
  SmallTraining(const CheckDevice& device, const SmallTrainingOptions& options);

  llama::Llama& model() { return model_; }
  // Forward, backward and optimizer on this step's batch. Returns the loss on
  // this rank's part, on the device, without waiting for it.
  at::Tensor Step();
  // That many steps. Returns the losses.
  std::vector<double> Train(int64_t num_steps);

 private:
  at::Tensor Microbatch(const at::Tensor& rows, bool is_last);

  const CheckDevice& device_;
  const SmallTrainingOptions options_;
  llama::Llama model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  int64_t num_steps_ = 0;
};

// The largest difference between losses in the same step, divided by the loss
// in `expected`; infinite if one is not finite.
double LargestDifference(const std::vector<double>& found,
                         const std::vector<double>& expected);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_GPU_SMALL_TRAINING_H_
