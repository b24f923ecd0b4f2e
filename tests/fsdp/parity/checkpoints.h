// SPDX-License-Identifier: Apache-2.0
// Saves and resumes parity_trainer's training; the counterpart to
// checkpoints.py, which describes the files. `average` is null without an
// average of the weights. Collective; raises on errors.
#ifndef TESTS_FSDP_PARITY_CHECKPOINTS_H_
#define TESTS_FSDP_PARITY_CHECKPOINTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "fsdp/checkpoint/state/state_value.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace fsdp::testing {

void SaveCheckpoint(const std::string& path, int64_t step,
                    const torch::nn::Module& module,
                    torch::optim::Optimizer& optimizer,
                    const std::shared_ptr<Stateful>& average);

void LoadCheckpoint(const std::string& path, int64_t step,
                    torch::nn::Module& module,
                    torch::optim::Optimizer& optimizer,
                    const std::shared_ptr<Stateful>& average);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_PARITY_CHECKPOINTS_H_
