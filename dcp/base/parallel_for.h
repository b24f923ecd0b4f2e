// SPDX-License-Identifier: Apache-2.0
// ParallelFor: many short operations that wait for a file system or a store, at
// the same time.
#ifndef DCP_BASE_PARALLEL_FOR_H_
#define DCP_BASE_PARALLEL_FOR_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace dcp {

// Calls `body` with 0 to count - 1, in any order, on at most `num_threads`
// threads, including the calling thread, and waits for all. After an error no
// further call begins; the first error is returned.
absl::Status ParallelFor(size_t count, uint32_t num_threads,
                         absl::FunctionRef<absl::Status(size_t)> body);

}  // namespace dcp

#endif  // DCP_BASE_PARALLEL_FOR_H_
