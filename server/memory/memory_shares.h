// SPDX-License-Identifier: Apache-2.0
// MemoryShares: how max-memory is divided, so that jobs and calls never wait
// for each other forever. Pure; any thread.
//
//   |<------------------------ max-memory ------------------------->|
//   | readers | calls, always | jobs, and calls while no job waits   |
//   |         |               | for memory                           |
//             |<- idle windows: a part of the memory for calls       |
#ifndef SERVER_MEMORY_MEMORY_SHARES_H_
#define SERVER_MEMORY_MEMORY_SHARES_H_

#include <cstdint>

#include "dcp/base/limits.h"

namespace dcp::server {

// The memory of a job that does not request another amount, unless jobs may not
// have that much.
inline constexpr uint64_t kDefaultJobBytes = kDefaultMemoryBytes;

// Fractions of the memory: readers get at most a quarter; an eighth is kept for
// calls in addition to the readers' part.
inline constexpr uint64_t kReadersShare = 4;
inline constexpr uint64_t kCallsShare = 8;
// With less memory there are no readers.
inline constexpr uint64_t kMinReadingBytes = kReadersShare * kMinMemoryBytes;

struct MemoryShares {
  // The number of threads that read for streams, and the blocks that each
  // keeps. 0: max-memory is too small to read anything for a stream.
  int64_t num_readers = 0;
  uint64_t blocks_per_reader = 0;
  // The most that windows which no stream is using may hold.
  uint64_t idle_bytes = 0;
  // The part that jobs leave to calls, including the readers' part.
  uint64_t calls_bytes = 0;
  // The most that one job, or all jobs together, may have.
  uint64_t jobs_bytes = 0;

  uint64_t readers_bytes() const;
};

MemoryShares DivideMemory(uint64_t max_memory_bytes, int64_t num_readers);

}  // namespace dcp::server

#endif  // SERVER_MEMORY_MEMORY_SHARES_H_
