// MemoryShares: how max-memory is divided, so that jobs and calls never wait
// for each other without end. Pure; any thread.
//
//   |<------------------------ max-memory ------------------------->|
//   | readers | calls, always | what jobs may have, and calls while  |
//   |         |               | no job waits for it                  |
//             |<- idle windows: a part of what calls have            |
#ifndef SERVER_MEMORY_SHARES_H_
#define SERVER_MEMORY_SHARES_H_

#include <cstdint>

#include "dcp/base/limits.h"

namespace dcp::server {

// Of a job that does not ask for another, where jobs may have as much.
inline constexpr uint64_t kDefaultJobBytes = uint64_t{256} << 20;

// Parts of the memory: readers take a quarter at most; an eighth is kept for
// calls, beside what the readers have.
inline constexpr uint64_t kReadersShare = 4;
inline constexpr uint64_t kCallsShare = 8;
// With less there is no reader.
inline constexpr uint64_t kMinReadingBytes = kReadersShare * kMinMemoryBytes;

struct MemoryShares {
  // Threads that read for streams, and the blocks of each, which they keep. No
  // reader: max-memory is too small to read anything for a stream.
  int64_t num_readers = 0;
  uint64_t blocks_per_reader = 0;
  // Of windows that nobody wants at the moment, at most.
  uint64_t idle_bytes = 0;
  // That jobs leave to calls, with what the readers keep.
  uint64_t calls_bytes = 0;
  // The most that one job, or all of them together, may have.
  uint64_t jobs_bytes = 0;

  uint64_t readers_bytes() const;
};

MemoryShares DivideMemory(uint64_t max_memory_bytes, int64_t num_readers);

}  // namespace dcp::server

#endif  // SERVER_MEMORY_SHARES_H_
