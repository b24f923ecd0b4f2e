// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism plans for parity_trainer's models, under the names in
// parallel.py, for this trainer and for benchmarks. For the thread that trains.
#ifndef TESTS_FSDP_PARITY_PARALLEL_H_
#define TESTS_FSDP_PARITY_PARALLEL_H_

#include <string>

#include "fsdp/mesh/device_mesh.h"
#include "torch/nn/module.h"

namespace fsdp::testing {

// Cuts a Gpt (plan "tp") or a llama::Llama ("tp", "sp", "sp_loss"), which is
// not sharded yet, over the one axis of `mesh`. Collective. Throws
// c10::ValueError for another plan.
void Parallelize(torch::nn::Module& model, const DeviceMesh& mesh,
                 const std::string& plan);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_PARITY_PARALLEL_H_
