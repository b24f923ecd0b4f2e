// SPDX-License-Identifier: Apache-2.0
// How long work takes on the simulated clock (SIM_CLOCK=1): a table for an H100
// and the links between several. Kernels take the longer of the times for
// products and for memory traffic; collectives a latency and the bytes that a
// ring moves. Any thread.
//
// Sources: NVIDIA's data sheet for the H100 SXM; for the shares that kernels
// and NCCL reach, the README of nccl-tests and published GEMM figures.
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

// The time for a kernel with these arguments, which reads and writes
// `accesses`.
double KernelMicros(const std::string& op, const torch::jit::Stack& arguments,
                    const std::vector<Access>& accesses);
// The time for a copy within a device, or over PCIe.
double CopyMicros(const std::vector<Access>& accesses, bool is_local);
// The time for a collective over `num_ranks` ranks that moves `bytes`: the
// larger of a rank's whole input and whole output. `operation` is "all-gather"
// and so on.
double CollectiveMicros(const std::string& operation, uint64_t bytes,
                        int num_ranks, bool is_one_machine);

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_COST_MODEL_H_
