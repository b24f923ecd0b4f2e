// SPDX-License-Identifier: Apache-2.0
// Finds two overlapping boxes among many, or proves that all are disjoint, by
// cutting space where the cut meets few boxes. The boxes are chunks that a file
// claims to have, so this must stay fast for arrangements that no training job
// makes. Pure; any thread.
#ifndef DCP_PLAN_DISJOINT_H_
#define DCP_PLAN_DISJOINT_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "dcp/tensor/box.h"

namespace dcp {

// Two overlapping boxes boxes[i] and boxes[j] with i and j in `members`, the
// lower index first; nullopt when all are disjoint. The members have the same
// number of dimensions, no empty sizes, and ends that fit into 64 bits. O(n log
// n) if most boxes lie to one side of a plane through the median, as in grids.
std::optional<std::pair<uint32_t, uint32_t>> FindOverlap(
    absl::Span<const Box> boxes, std::vector<uint32_t> members);

}  // namespace dcp

#endif  // DCP_PLAN_DISJOINT_H_
