// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process: RunRanks starts them, each with a
// Coordinator over memory. All ranks must take part in every call.

#ifndef TESTS_TESTING_THREAD_COORDINATOR_H_
#define TESTS_TESTING_THREAD_COORDINATOR_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "dcp/checkpoint/save/coordinator.h"

namespace dcp::testing {

// Runs `work` on `num_ranks` threads and returns each thread's status.
std::vector<absl::Status> RunRanks(
    int64_t num_ranks,
    absl::FunctionRef<absl::Status(Coordinator& coordinator)> work);

}  // namespace dcp::testing

#endif  // TESTS_TESTING_THREAD_COORDINATOR_H_
