// Which stored chunks hold the elements that are wanted. Pure; any thread.
#ifndef DCP_PLAN_LOAD_PLAN_H_
#define DCP_PLAN_LOAD_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/tensor/box.h"

namespace dcp {

// The part `overlap` (in the tensor's coordinates) of wanted box `wanted`
// lies in stored chunk `chunk`.
struct ReadItem {
  uint32_t wanted;
  uint32_t chunk;
  Box overlap;

  friend bool operator==(const ReadItem&, const ReadItem&) = default;
};

// Sorted by wanted box, then by chunk offsets.
using LoadPlan = std::vector<ReadItem>;

// The plan for one tensor, whose stored chunks are disjoint. The cost grows
// with the number of matches, not of pairs. DataLoss when a part of a wanted
// box is not stored anywhere.
absl::StatusOr<LoadPlan> PlanLoad(absl::Span<const Box> wanted,
                                  absl::Span<const Box> stored);

}  // namespace dcp

#endif  // DCP_PLAN_LOAD_PLAN_H_
