// SPDX-License-Identifier: Apache-2.0
// The model of a job for parity_trainer, independent of its type, and its first
// weights.
#ifndef TESTS_FSDP_PARITY_JOB_MODEL_H_
#define TESTS_FSDP_PARITY_JOB_MODEL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "nlohmann/json.hpp"
#include "torch/nn/module.h"

namespace fsdp::testing {

struct Model {
  std::shared_ptr<torch::nn::Module> module;
  std::vector<std::shared_ptr<torch::nn::Module>> layers;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

// float32, float64 or bfloat16.
at::ScalarType DtypeNamed(const std::string& name);

// All bytes.
std::string ReadFile(const std::string& path);

Model MakeModel(const nlohmann::json& config);

// Fills each parameter from NAME.bin in `folder`, which has float32.
void LoadWeights(const std::string& folder, torch::nn::Module& module);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_PARITY_JOB_MODEL_H_
