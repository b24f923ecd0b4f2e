#include "dcp/plan/load_plan.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/plan/chunk_index.h"

namespace dcp {

absl::StatusOr<LoadPlan> PlanLoad(absl::Span<const Box> wanted,
                                  absl::Span<const Box> stored) {
  DCP_CHECK(wanted.size() < std::numeric_limits<uint32_t>::max(), wanted.size(),
            " wanted boxes");
  const ChunkIndex index(stored);
  LoadPlan plan;
  // Both sides are usually cut alike, and then neighbours share a boundary.
  plan.reserve(wanted.size() + stored.size());
  const auto by_offsets = [&](const ReadItem& a, const ReadItem& b) {
    return stored[a.chunk].offsets < stored[b.chunk].offsets;
  };
  for (size_t w = 0; w < wanted.size(); ++w) {
    const auto first = static_cast<std::ptrdiff_t>(plan.size());
    int64_t found = 0;
    index.ForEachOverlap(wanted[w], [&](size_t chunk, const Box& overlap) {
      found += Volume(overlap.sizes);
      plan.push_back({.wanted = static_cast<uint32_t>(w),
                      .chunk = static_cast<uint32_t>(chunk),
                      .overlap = overlap});
    });
    // The chunks are disjoint: if they hold as many elements, they hold all of
    // them.
    const int64_t needed = Volume(wanted[w].sizes);
    if (found != needed) {
      return absl::DataLossError(
          absl::StrCat(needed - found, " of the ", needed, " elements of ",
                       ToString(wanted[w]), " are in no chunk"));
    }
    if (!std::is_sorted(plan.begin() + first, plan.end(), by_offsets)) {
      std::sort(plan.begin() + first, plan.end(), by_offsets);
    }
  }
  return plan;
}

}  // namespace dcp
