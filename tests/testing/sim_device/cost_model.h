// SPDX-License-Identifier: Apache-2.0
// How long work takes on the simulated clock (SIM_CLOCK=1): a table of an H100
// and of the links between several. Kernels take the longer of their products
// and their memory traffic; collectives a latency and the bytes that a ring
// moves. Any thread.
//
// Sources: NVIDIA's data sheet of the H100 SXM; for the shares of these that
// kernels and NCCL reach, the README of nccl-tests and published GEMM figures.
#ifndef TESTS_TESTING_SIM_DEVICE_COST_MODEL_H_
#define TESTS_TESTING_SIM_DEVICE_COST_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/stack.h"
#include "tests/testing/sim_device/race_detector.h"

namespace sim {

// The host issues a piece of work in so many microseconds.
inline constexpr double kIssueMicros = 5;

// Of a kernel with these arguments, which reads and writes `accesses`.
double KernelMicros(const std::string& op, const torch::jit::Stack& arguments,
                    const std::vector<Access>& accesses);
// Of a copy within a device, or over PCIe.
double CopyMicros(const std::vector<Access>& accesses, bool is_local);
// Of a collective of `num_ranks` that moves `bytes`: the larger of the whole
// input and the whole output of a rank. `operation` is "all-gather" and so on.
double CollectiveMicros(const std::string& operation, uint64_t bytes,
                        int num_ranks, bool is_one_machine);

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_COST_MODEL_H_
