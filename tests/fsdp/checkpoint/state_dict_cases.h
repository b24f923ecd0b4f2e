// SPDX-License-Identifier: Apache-2.0
// Models, optimizers and comparisons for tests of state dicts.
#ifndef TESTS_FSDP_CHECKPOINT_STATE_DICT_CASES_H_
#define TESTS_FSDP_CHECKPOINT_STATE_DICT_CASES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/checkpoint/state/state_value.h"
#include "tests/fsdp/tiny_model.h"
#include "torch/torch.h"

namespace fsdp::testing {

using OptimizerPtr = std::unique_ptr<torch::optim::Optimizer>;

TinyModel MakeModel(int64_t seed, bool tied = false);

// Shards on a mesh with one dimension; replicates and shards on a mesh with
// two.
void ShardModel(TinyModel& model, const std::vector<int64_t>& mesh_shape);

// Rows in a global batch.
inline constexpr int64_t kBatch = 12;

// One step on this rank's slice of the global batch; returns the slice's loss.
double TrainStep(TinyModel& model, torch::optim::Optimizer& optimizer,
                 int64_t step, int64_t rank, int64_t world);

OptimizerPtr MakeAdamW(const std::vector<torch::Tensor>& parameters);

const StateDict& Dict(const StateValue& value);

std::vector<std::string> ListKeys(const StateDict& dict);

// A leaf's whole tensor; collective for a DTensor.
torch::Tensor WholeTensor(const StateValue& value);

// Compares tensor values and all plain values; collective for DTensors.
void ExpectSame(const StateValue& a, const StateValue& b,
                const std::string& name, double tolerance = 0);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_CHECKPOINT_STATE_DICT_CASES_H_
