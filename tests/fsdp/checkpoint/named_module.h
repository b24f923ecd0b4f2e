// SPDX-License-Identifier: Apache-2.0
// A module that has tensors with given names and nothing else: stands for a
// model when only names and shapes are known. One thread.
#ifndef TESTS_FSDP_CHECKPOINT_NAMED_MODULE_H_
#define TESTS_FSDP_CHECKPOINT_NAMED_MODULE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "torch/nn/module.h"

namespace fsdp::testing {

struct NamedTensor {
  std::string name;  // "layers.0.weight"
  std::vector<int64_t> shape;
  bool is_buffer = false;  // integers; otherwise a parameter of floats
  bool is_trained = true;
};

// All tensors are zero.
std::shared_ptr<torch::nn::Module> MakeNamedModule(
    const std::vector<NamedTensor>& tensors);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_CHECKPOINT_NAMED_MODULE_H_
