// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/disjoint.h"

#include <algorithm>
#include <cstddef>

namespace dcp {
namespace {

using Pair = std::optional<std::pair<uint32_t, uint32_t>>;
using Members = std::vector<uint32_t>;

// Fewer boxes than this are compared in pairs.
constexpr size_t kMinToCut = 16;

// How many offsets are sampled to find a median.
constexpr size_t kNumSamples = 65;

bool Overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.offsets.size(); ++d) {
    if (a.offsets[d] >= b.offsets[d] + b.sizes[d] ||
        b.offsets[d] >= a.offsets[d] + a.sizes[d]) {
      return false;
    }
  }
  return true;
}

// The plane at `position` across dimension `dim`. Boxes that it cuts belong to
// both sides.
struct Cut {
  size_t dim = 0;
  int64_t position = 0;
  size_t num_below = 0;
  size_t num_above = 0;

  // The larger side decides how deep the recursion goes, the sum how wide.
  size_t Cost() const {
    return std::max(num_below, num_above) + num_below + num_above;
  }
};

bool IsBelow(const Box& box, const Cut& cut) {
  return box.offsets[cut.dim] < cut.position;
}

bool IsAbove(const Box& box, const Cut& cut) {
  return box.offsets[cut.dim] + box.sizes[cut.dim] > cut.position;
}

// The cheapest plane among those through the median offset and the median end
// in every dimension, judged by some of the boxes.
Cut ChooseCut(absl::Span<const Box> boxes, const Members& members) {
  std::vector<uint32_t> samples;
  const size_t num_samples = std::min(kNumSamples, members.size());
  for (size_t i = 0; i < num_samples; ++i) {
    samples.push_back(members[i * members.size() / num_samples]);
  }
  Cut best{.num_below = boxes.size(), .num_above = boxes.size()};
  std::vector<int64_t> offsets(samples.size());
  const auto median =
      offsets.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  for (size_t d = 0; d < boxes[members[0]].offsets.size(); ++d) {
    for (const bool ends : {false, true}) {
      for (size_t i = 0; i < samples.size(); ++i) {
        const Box& box = boxes[samples[i]];
        offsets[i] = box.offsets[d] + (ends ? box.sizes[d] : 0);
      }
      std::nth_element(offsets.begin(), median, offsets.end());
      Cut cut{.dim = d, .position = *median};
      for (const uint32_t i : samples) {
        cut.num_below += IsBelow(boxes[i], cut);
        cut.num_above += IsAbove(boxes[i], cut);
      }
      if (cut.Cost() < best.Cost()) best = cut;
    }
  }
  return best;
}

Pair InOrder(uint32_t a, uint32_t b) { return std::minmax(a, b); }

// For boxes that no cut separates: along one dimension, compares each box with
// the boxes that are still open where it begins.
Pair SweepDim(absl::Span<const Box> boxes, Members members, size_t dim) {
  std::sort(members.begin(), members.end(), [&](uint32_t a, uint32_t b) {
    return boxes[a].offsets[dim] < boxes[b].offsets[dim];
  });
  Members open;
  for (const uint32_t member : members) {
    const int64_t begin = boxes[member].offsets[dim];
    size_t kept = 0;
    for (const uint32_t other : open) {
      if (boxes[other].offsets[dim] + boxes[other].sizes[dim] <= begin) {
        continue;
      }
      if (Overlap(boxes[member], boxes[other])) return InOrder(member, other);
      open[kept++] = other;
    }
    open.resize(kept);
    open.push_back(member);
  }
  return std::nullopt;
}

Pair ComparePairs(absl::Span<const Box> boxes, const Members& members) {
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (Overlap(boxes[members[i]], boxes[members[j]])) {
        return InOrder(members[i], members[j]);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Pair FindOverlap(absl::Span<const Box> boxes, Members members) {
  if (members.size() > 1 && boxes[members[0]].offsets.empty()) {
    return InOrder(members[0], members[1]);
  }
  // Depth first: each entry is a set of boxes that must still be searched.
  std::vector<Members> todo;
  todo.push_back(std::move(members));
  while (!todo.empty()) {
    const Members current = std::move(todo.back());
    todo.pop_back();
    Pair found;
    if (current.size() < kMinToCut) {
      found = ComparePairs(boxes, current);
      if (found.has_value()) return found;
      continue;
    }
    const Cut cut = ChooseCut(boxes, current);
    Members below;
    Members above;
    for (const uint32_t i : current) {
      if (IsBelow(boxes[i], cut)) below.push_back(i);
      if (IsAbove(boxes[i], cut)) above.push_back(i);
    }
    // A cut through too many boxes would make more work than it saves.
    const size_t size = current.size();
    if (std::max(below.size(), above.size()) > size - size / 8 ||
        below.size() + above.size() > size + size / 8) {
      found = SweepDim(boxes, current, cut.dim);
      if (found.has_value()) return found;
      continue;
    }
    todo.push_back(std::move(above));
    todo.push_back(std::move(below));
  }
  return std::nullopt;
}

}  // namespace dcp
