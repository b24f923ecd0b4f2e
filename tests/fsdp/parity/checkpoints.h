// SPDX-License-Identifier: Apache-2.0
// Saves and resumes parity_trainer's training; the counterpart to
// checkpoints.py, which describes the files. Collective; raises on errors.
#ifndef TESTS_FSDP_PARITY_CHECKPOINTS_H_
#define TESTS_FSDP_PARITY_CHECKPOINTS_H_

#include <cstdint>
#include <string>

#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace fsdp::testing {

void SaveCheckpoint(const std::string& path, int64_t step,
                    const torch::nn::Module& module,
                    torch::optim::Optimizer& optimizer);

void LoadCheckpoint(const std::string& path, int64_t step,
                    torch::nn::Module& module,
                    torch::optim::Optimizer& optimizer);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_PARITY_CHECKPOINTS_H_
