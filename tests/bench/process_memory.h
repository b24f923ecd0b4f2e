// SPDX-License-Identifier: Apache-2.0
// This process's unshared memory, as the benchmarks report it. Bytes; any
// thread.
#ifndef TESTS_BENCH_PROCESS_MEMORY_H_
#define TESTS_BENCH_PROCESS_MEMORY_H_

#include <cstdint>

namespace dcp {

int64_t PrivateBytes();

// The peak since the process began, or since ForgetPeak.
int64_t PeakPrivateBytes();

void ForgetPeak();

}  // namespace dcp

#endif  // TESTS_BENCH_PROCESS_MEMORY_H_
