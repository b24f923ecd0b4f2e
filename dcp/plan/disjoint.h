// Finds two boxes that overlap among many, or proves that there are none, by
// cutting space where few boxes are cut. Called for chunks that a file claims,
// so that it stays fast for arrangements that no training job makes. Pure;
// any thread.
#ifndef DCP_PLAN_DISJOINT_H_
#define DCP_PLAN_DISJOINT_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "dcp/tensor/box.h"

namespace dcp {

// Two of boxes[i], i in `members`, that overlap, the lower index first;
// nullopt when they are disjoint. The members have equally many dimensions, no
// empty sizes, and ends that 64 bits hold. O(n log n) wherever most boxes lie
// to one side of a plane through the median, as in grids.
std::optional<std::pair<uint32_t, uint32_t>> FindOverlap(
    absl::Span<const Box> boxes, std::vector<uint32_t> members);

}  // namespace dcp

#endif  // DCP_PLAN_DISJOINT_H_
