// SPDX-License-Identifier: Apache-2.0
// Decides whether an output's files are written side by side.
//
// Tested by tests/dcp/checkpoint/convert/convert_test.cc.
#include "dcp/checkpoint/output/interleaving.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/mapped_payloads.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

// True when `part` of a row-major `whole` is not one contiguous stretch.
bool IsStriped(const Box& whole, const Box& part) {
  size_t dim = 0;
  while (dim < whole.sizes.size() && part.sizes[dim] == 1) ++dim;
  for (++dim; dim < whole.sizes.size(); ++dim) {
    if (part.sizes[dim] != whole.sizes[dim]) return true;
  }
  return false;
}

// Whether any of `payloads`, all from one stored tensor, needs stripes of it.
bool TakesStripes(const TensorEntry& stored,
                  absl::Span<const Payload* const> payloads) {
  const ChunkIndex index(stored.boxes);
  bool striped = false;
  for (const Payload* payload : payloads) {
    index.ForEachOverlap(payload->box, [&](size_t chunk, const Box& overlap) {
      striped = striped || IsStriped(stored.boxes[chunk], overlap);
    });
    if (striped) return true;
  }
  return false;
}

}  // namespace

// Goes tensor by tensor, so that each tensor's index is built only once.
bool NeedsInterleaving(const Output& output) {
  if (output.files.size() < 2) return false;
  if (MappedFilesShareSources(output)) return true;
  std::vector<const Payload*> payloads;
  for (const Payload& payload : output.payloads) {
    if (payload.stored != nullptr && payload.stored->mapped == nullptr) {
      payloads.push_back(&payload);
    }
  }
  const auto is_before = [](const Payload* a, const Payload* b) {
    return std::less<>()(a->stored, b->stored);
  };
  std::sort(payloads.begin(), payloads.end(), is_before);
  const absl::Span<const Payload* const> all(payloads);
  for (size_t first = 0; first < all.size();) {
    size_t last = first + 1;
    while (last < all.size() && all[last]->stored == all[first]->stored) ++last;
    if (TakesStripes(*all[first]->stored, all.subspan(first, last - first))) {
      return true;
    }
    first = last;
  }
  return false;
}

}  // namespace dcp
