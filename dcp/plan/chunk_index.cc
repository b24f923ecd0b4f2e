// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/chunk_index.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/plan/disjoint.h"

namespace dcp {
namespace {

bool IsEmpty(const Box& box) {
  return std::find(box.sizes.begin(), box.sizes.end(), 0) != box.sizes.end();
}

// The dimension along which the chunks follow each other while they are alike
// in all others. nullopt when they are cut differently or listed in another
// order, or when a chunk's end (the chunk may be empty) does not fit into 64
// bits.
std::optional<size_t> SlicedDim(absl::Span<const Box> chunks) {
  if (chunks.empty() || chunks[0].offsets.empty()) return std::nullopt;
  const Box& first = chunks[0];
  const size_t num_dims = first.offsets.size();
  size_t dim = 0;
  if (chunks.size() > 1) {
    while (dim < num_dims && chunks[1].offsets[dim] == first.offsets[dim]) {
      ++dim;
    }
    if (dim == num_dims) return std::nullopt;
  }
  int64_t last_end = first.offsets[dim];
  for (const Box& chunk : chunks) {
    for (size_t d = 0; d < num_dims; ++d) {
      int64_t end;
      if (__builtin_add_overflow(chunk.offsets[d], chunk.sizes[d], &end)) {
        return std::nullopt;
      }
      if (d != dim) {
        if (chunk.offsets[d] != first.offsets[d] ||
            chunk.sizes[d] != first.sizes[d]) {
          return std::nullopt;
        }
        continue;
      }
      if (chunk.offsets[d] < last_end || chunk.sizes[d] < 0) {
        return std::nullopt;
      }
      last_end = end;
    }
  }
  return dim;
}

size_t NumDistinctOffsets(absl::Span<const Box> chunks, size_t dim) {
  std::vector<int64_t> offsets;
  offsets.reserve(chunks.size());
  for (const Box& chunk : chunks) {
    // When chunks are listed in order, equal offsets are adjacent.
    if (offsets.empty() || offsets.back() != chunk.offsets[dim]) {
      offsets.push_back(chunk.offsets[dim]);
    }
  }
  std::sort(offsets.begin(), offsets.end());
  return static_cast<size_t>(std::unique(offsets.begin(), offsets.end()) -
                             offsets.begin());
}

// The two dimensions with the most distinct offsets; the same one twice when
// there is only one.
std::pair<size_t, size_t> BestDims(absl::Span<const Box> chunks) {
  const size_t num_dims = chunks.empty() ? 0 : chunks[0].offsets.size();
  std::vector<std::pair<size_t, size_t>> ranking;  // (distinct offsets, dim)
  for (size_t d = 0; d < num_dims; ++d) {
    ranking.emplace_back(NumDistinctOffsets(chunks, d), d);
  }
  std::stable_sort(
      ranking.begin(), ranking.end(),
      [](const auto& a, const auto& b) { return a.first > b.first; });
  if (ranking.empty()) return {0, 0};
  return {ranking[0].second, ranking[ranking.size() > 1 ? 1 : 0].second};
}

// The chunks that are not empty, sorted by their offsets in the two
// dimensions.
std::vector<uint32_t> SortedOrder(absl::Span<const Box> chunks, size_t outer,
                                  size_t inner) {
  std::vector<std::tuple<int64_t, int64_t, uint32_t>> keys;
  keys.reserve(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (IsEmpty(chunks[i])) continue;
    keys.emplace_back(chunks[i].offsets[outer], chunks[i].offsets[inner],
                      static_cast<uint32_t>(i));
  }
  if (!std::is_sorted(keys.begin(), keys.end())) {
    std::sort(keys.begin(), keys.end());
  }
  std::vector<uint32_t> order;
  order.reserve(keys.size());
  for (const auto& key : keys) order.push_back(std::get<2>(key));
  return order;
}

}  // namespace

ChunkIndex::ChunkIndex(absl::Span<const Box> chunks) : chunks_(chunks) {
  DCP_CHECK(chunks.size() < std::numeric_limits<uint32_t>::max(), chunks.size(),
            " chunks");
  if (chunks.empty() || chunks[0].offsets.empty()) return;
  if (const std::optional<size_t> dim = SlicedDim(chunks); dim.has_value()) {
    is_sliced_ = true;
    outer_dim_ = *dim;
    return;
  }
  std::tie(outer_dim_, inner_dim_) = BestDims(chunks);
  order_ = SortedOrder(chunks, outer_dim_, inner_dim_);
  std::vector<int64_t> band_offsets;
  std::vector<int64_t> band_ends;
  std::vector<int64_t> begins;
  std::vector<int64_t> ends;
  begins.reserve(order_.size());
  ends.reserve(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) {
    const Box& chunk = chunks[order_[i]];
    const int64_t offset = chunk.offsets[outer_dim_];
    const int64_t end = offset + chunk.sizes[outer_dim_];
    if (band_offsets.empty() || band_offsets.back() != offset) {
      band_begins_.push_back(i);
      band_offsets.push_back(offset);
      band_ends.push_back(end);
    }
    band_ends.back() = std::max(band_ends.back(), end);
    begins.push_back(chunk.offsets[inner_dim_]);
    ends.push_back(begins.back() + chunk.sizes[inner_dim_]);
  }
  band_begins_.push_back(order_.size());
  bands_ = IntervalList(std::move(band_offsets), std::move(band_ends));
  inner_ = IntervalList(std::move(begins), std::move(ends));
}

void ChunkIndex::ForEachOverlap(
    const Box& wanted,
    absl::FunctionRef<void(size_t chunk, const Box& overlap)> visit) const {
  if (wanted.offsets.empty()) {
    for (size_t i = 0; i < chunks_.size(); ++i) visit(i, wanted);
    return;
  }
  if (chunks_.empty() || IsEmpty(wanted)) return;
  const int64_t outer_begin = wanted.offsets[outer_dim_];
  const int64_t outer_end = outer_begin + wanted.sizes[outer_dim_];
  if (is_sliced_) {
    const auto first = std::partition_point(
        chunks_.begin(), chunks_.end(), [&](const Box& chunk) {
          return chunk.offsets[outer_dim_] + chunk.sizes[outer_dim_] <=
                 outer_begin;
        });
    for (auto chunk = first;
         chunk != chunks_.end() && chunk->offsets[outer_dim_] < outer_end;
         ++chunk) {
      const std::optional<Box> overlap = Intersect(*chunk, wanted);
      if (overlap.has_value()) {
        visit(static_cast<size_t>(chunk - chunks_.begin()), *overlap);
      }
    }
    return;
  }
  if (order_.empty()) return;
  const int64_t inner_begin = wanted.offsets[inner_dim_];
  const int64_t inner_end = inner_begin + wanted.sizes[inner_dim_];
  const size_t last_band =
      bands_.FirstBeginningAtOrAfter(0, band_begins_.size() - 1, outer_end);
  for (size_t band = bands_.FirstEndingAfter(0, last_band, outer_begin);
       band < last_band;
       band = bands_.FirstEndingAfter(band + 1, last_band, outer_begin)) {
    const size_t first = band_begins_[band];
    const size_t last = inner_.FirstBeginningAtOrAfter(
        first, band_begins_[band + 1], inner_end);
    for (size_t i = inner_.FirstEndingAfter(first, last, inner_begin); i < last;
         i = inner_.FirstEndingAfter(i + 1, last, inner_begin)) {
      const std::optional<Box> overlap = Intersect(chunks_[order_[i]], wanted);
      if (overlap.has_value()) visit(order_[i], *overlap);
    }
  }
}

absl::Status CheckCoverage(absl::Span<const int64_t> shape,
                           absl::Span<const Box> chunks) {
  const std::optional<int64_t> total = CheckedVolume(shape);
  if (!total.has_value()) {
    return absl::DataLossError(absl::StrCat("shape ", ShapeToString(shape),
                                            " is negative or too large"));
  }
  const Box whole = WholeBox(shape);
  std::vector<uint32_t> full;  // the chunks that have elements
  full.reserve(chunks.size());
  uint64_t covered = 0;
  bool overflow = false;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const bool negative =
        std::any_of(chunks[i].sizes.begin(), chunks[i].sizes.end(),
                    [](int64_t size) { return size < 0; });
    if (!negative && chunks[i].sizes.size() == shape.size() &&
        chunks[i].offsets.size() == shape.size() && IsEmpty(chunks[i])) {
      continue;
    }
    if (!Contains(whole, chunks[i])) {
      return absl::DataLossError(
          absl::StrCat("chunk ", i, " ", ToString(chunks[i]),
                       " is not inside shape ", ShapeToString(shape)));
    }
    // A chunk inside the shape is not larger than it; only the sum can
    // overflow.
    overflow |= __builtin_add_overflow(
        covered, static_cast<uint64_t>(Volume(chunks[i].sizes)), &covered);
    full.push_back(static_cast<uint32_t>(i));
  }
  std::optional<std::pair<uint32_t, uint32_t>> overlap;
  // Slices in order cannot overlap. The loop above checked that they lie inside
  // the shape, except for empty ones, which may have any offsets.
  if (full.size() < chunks.size() || !SlicedDim(chunks).has_value()) {
    overlap = FindOverlap(chunks, std::move(full));
  }
  if (overlap.has_value()) {
    return absl::DataLossError(
        absl::StrCat("chunks ", overlap->first, " ",
                     ToString(chunks[overlap->first]), " and ", overlap->second,
                     " ", ToString(chunks[overlap->second]), " overlap"));
  }
  // Disjoint parts cannot add up to more than the whole.
  DCP_CHECK(!overflow && covered <= static_cast<uint64_t>(*total),
            "disjoint chunks hold ", covered, " of ", *total);
  if (covered < static_cast<uint64_t>(*total)) {
    return absl::DataLossError(
        absl::StrCat(static_cast<uint64_t>(*total) - covered, " of ", *total,
                     " elements of shape ", ShapeToString(shape),
                     " are in none of its ", chunks.size(), " chunks"));
  }
  return absl::OkStatus();
}

}  // namespace dcp
