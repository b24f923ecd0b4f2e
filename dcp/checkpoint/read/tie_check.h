// SPDX-License-Identifier: Apache-2.0
// CheckTies: whether tensors that a mapping treats as equal really are, such as
// the two names of tied embeddings, when only one is converted; and whether
// padding that it leaves out is zero. Ranks or workers that share the work
// compare a part each. Blocking; any thread.
#ifndef DCP_CHECKPOINT_READ_TIE_CHECK_H_
#define DCP_CHECKPOINT_READ_TIE_CHECK_H_

#include <cstdint>
#include <stop_token>

#include "absl/status/status.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The parts from `first` to before `end`, out of `count` parts that together
// are the whole comparison. The cut is the same for all that open the same
// checkpoint through the same mapping.
struct TieParts {
  uint32_t first = 0;
  uint32_t end = 1;
  uint32_t count = 1;
};

struct TieCheckOptions {
  uint64_t memory_bytes = kDefaultMemoryBytes;  // at least kMinMemoryBytes
  std::stop_token stop = {};
  TieParts parts = {};
  bool checks_padding = false;  // otherwise only ties are compared
};

// Compares, bit by bit, the elements that must be equal in `checkpoint`
// according to the mapping; OK without a mapping. FailedPrecondition names two
// tensors that differ, or one with padding that is not zero, and the first such
// element among those compared.
absl::Status CheckTies(FileSystem& fs, Checkpoint& checkpoint,
                       const TieCheckOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_TIE_CHECK_H_
