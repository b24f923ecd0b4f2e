// CheckTies: whether tensors that a mapping takes for equal really are, such as
// the two names of tied embeddings, of which only one is converted. Blocking;
// any thread.
#ifndef DCP_CHECKPOINT_READ_TIE_CHECK_H_
#define DCP_CHECKPOINT_READ_TIE_CHECK_H_

#include <cstdint>
#include <stop_token>

#include "absl/status/status.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Compares, bit by bit, what the mapping through which `checkpoint` was opened
// says is equal in it; OK without a mapping. FailedPrecondition names two
// tensors that differ, and the first element. Takes `memory_bytes`, at least
// 2 * kMinMemoryBytes.
absl::Status CheckTies(FileSystem& fs, Checkpoint& checkpoint,
                       uint64_t memory_bytes, const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_TIE_CHECK_H_
