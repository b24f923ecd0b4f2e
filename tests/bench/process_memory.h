// The memory of this process that no other process has, as the benchmarks
// report it of themselves. Bytes; any thread.
#ifndef TESTS_BENCH_PROCESS_MEMORY_H_
#define TESTS_BENCH_PROCESS_MEMORY_H_

#include <cstdint>

namespace dcp {

int64_t PrivateBytes();

// The most since the process began, or since ForgetPeak.
int64_t PeakPrivateBytes();

void ForgetPeak();

}  // namespace dcp

#endif  // TESTS_BENCH_PROCESS_MEMORY_H_
