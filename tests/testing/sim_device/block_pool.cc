// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/block_pool.h"

#include <algorithm>
#include <iterator>

namespace sim {
namespace {

constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kMinLargeBytes = size_t{10} << 20;
constexpr size_t kLargeSegment = size_t{20} << 20;
constexpr size_t kMinSplitSmall = 512;
constexpr size_t kMinSplitLarge = size_t{1} << 20;

}  // namespace

size_t BlockPool::SegmentBytes(size_t bytes) {
  const size_t size = RoundUp(bytes);
  if (size <= kSmallBytes) return kSmallSegment;
  if (size < kMinLargeBytes) return kLargeSegment;
  return (size + kSmallSegment - 1) / kSmallSegment * kSmallSegment;
}

Block BlockPool::Take(uintptr_t begin, size_t bytes) {
  const size_t size = RoundUp(bytes);
  Piece& piece = pieces_[begin];
  free_[piece.key].erase({piece.size, begin});
  const size_t rest = piece.size - size;
  const bool splits =
      piece.key.is_small ? rest >= kMinSplitSmall : rest > kMinSplitLarge;
  if (splits) {
    piece.size = size;
    pieces_[begin + size] = {.size = rest,
                             .segment = piece.segment,
                             .key = piece.key,
                             .in_use = false};
    free_[piece.key].insert({rest, begin + size});
  }
  piece.in_use = true;
  stats_.allocated += static_cast<int64_t>(piece.size);
  stats_.peak = std::max(stats_.peak, stats_.allocated);
  return {begin, piece.size};
}

bool BlockPool::HasFree(size_t stream, size_t bytes) {
  const FreeBlocks& blocks = free_[KeyFor(stream, bytes)];
  return blocks.lower_bound({RoundUp(bytes), 0}) != blocks.end();
}

Block BlockPool::TakeFree(size_t stream, size_t bytes) {
  const FreeBlocks& blocks = free_[KeyFor(stream, bytes)];
  return Take(blocks.lower_bound({RoundUp(bytes), 0})->second, bytes);
}

Block BlockPool::TakeFrom(uintptr_t begin, size_t stream, size_t bytes) {
  const size_t size = SegmentBytes(bytes);
  const Key key = KeyFor(stream, bytes);
  segments_[begin] = size;
  pieces_[begin] = {
      .size = size, .segment = begin, .key = key, .in_use = false};
  free_[key].insert({size, begin});
  stats_.reserved += static_cast<int64_t>(size);
  ++stats_.num_segments;
  return Take(begin, bytes);
}

BlockPool::Key BlockPool::Free(uintptr_t begin) {
  auto piece = pieces_.find(begin);
  const Key key = piece->second.key;
  FreeBlocks& blocks = free_[key];
  stats_.allocated -= static_cast<int64_t>(piece->second.size);
  piece->second.in_use = false;
  const auto may_join = [&](const auto& other) {
    return !other->second.in_use &&
           other->second.segment == piece->second.segment;
  };
  if (const auto next = std::next(piece);
      next != pieces_.end() && may_join(next)) {
    blocks.erase({next->second.size, next->first});
    piece->second.size += next->second.size;
    pieces_.erase(next);
  }
  if (piece != pieces_.begin() && may_join(std::prev(piece))) {
    const auto previous = std::prev(piece);
    blocks.erase({previous->second.size, previous->first});
    previous->second.size += piece->second.size;
    pieces_.erase(piece);
    piece = previous;
  }
  blocks.insert({piece->second.size, piece->first});
  return key;
}

std::optional<uintptr_t> BlockPool::BlockAt(uintptr_t address) const {
  const auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin()) return std::nullopt;
  const auto& [begin, piece] = *std::prev(after);
  if (!piece.in_use || address >= begin + piece.size) return std::nullopt;
  return begin;
}

std::vector<std::pair<uintptr_t, uintptr_t>> BlockPool::TakeEmptySegments() {
  std::vector<std::pair<uintptr_t, uintptr_t>> empty;
  for (auto it = segments_.begin(); it != segments_.end();) {
    const auto piece = pieces_.find(it->first);
    if (piece->second.in_use || piece->second.size != it->second) {
      ++it;
      continue;
    }
    free_[piece->second.key].erase({piece->second.size, piece->first});
    pieces_.erase(piece);
    stats_.reserved -= static_cast<int64_t>(it->second);
    --stats_.num_segments;
    empty.emplace_back(it->first, it->first + it->second);
    it = segments_.erase(it);
  }
  return empty;
}

}  // namespace sim
