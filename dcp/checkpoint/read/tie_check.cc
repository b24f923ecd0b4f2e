// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/read/tie_check.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "dcp/checkpoint/read/tensor_comparison.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

using TensorPointer = std::unique_ptr<const MappedTensor>;

// The elements that one side of a tie visits, as a tensor with one dimension
// per loop.
absl::StatusOr<TensorPointer> Visited(const StridedPiece& tie, PieceSide side,
                                      const MappedEntries& mapped) {
  const bool is_src = side == PieceSide::kSrc;
  StridedPiece piece;
  piece.src = is_src ? tie.src : tie.dst;  // kZeros for padding
  piece.src_base = is_src ? tie.src_base : tie.dst_base;
  piece.dst_base.assign(tie.loops.size(), 0);
  Dims shape;
  for (const StridedLoop& loop : tie.loops) {
    piece.loops.push_back({.count = loop.count,
                           .src_dim = is_src ? loop.src_dim : loop.dst_dim,
                           .src_step = is_src ? loop.src_step : loop.dst_step,
                           .dst_dim = static_cast<int>(shape.size()),
                           .dst_step = 1});
    shape.push_back(static_cast<int64_t>(loop.count));
  }
  return MappedTensor::Make(mapped.sources[tie.dst]->dtype, shape, {piece},
                            mapped.sources);
}

// The index in the tensor for visited element `number`.
Dims ElementIndex(const StridedPiece& tie, uint64_t number) {
  Dims place(tie.dst_base.begin(), tie.dst_base.end());
  for (size_t i = tie.loops.size(); i-- > 0;) {
    const StridedLoop& loop = tie.loops[i];
    place[static_cast<size_t>(loop.dst_dim)] +=
        static_cast<int64_t>(number % loop.count * loop.dst_step);
    number /= loop.count;
  }
  return place;
}

// The first step in part `part` of `count` equal parts of `num` steps. `num` is
// at most a tensor's element count, which is below 2^63; the product, which
// would not fit into 64 bits, is avoided.
uint64_t PartBegin(uint64_t num, uint64_t part, uint64_t count) {
  return num / count * part + num % count * part / count;
}

absl::Status DifferenceError(const Checkpoint& checkpoint,
                             const StridedPiece& tie,
                             const ElementDifference& difference) {
  const MappedEntries& mapped = *checkpoint.mapped();
  const auto name_of = [&](uint32_t source) -> const std::string& {
    return checkpoint.stored_entries()[mapped.entry_of_source[source]].fqn;
  };
  const std::string place =
      ShapeToString(ElementIndex(tie, difference.first_different));
  const std::string message =
      tie.src == StridedPiece::kZeros
          ? absl::StrCat("the mapping leaves out the padding of ",
                         name_of(tie.dst), ", but ", difference.num_different,
                         " elements of it are not zero, the first at ", place,
                         "; they would be lost")
          : absl::StrCat("the mapping takes ", name_of(tie.dst),
                         " for equal to ", name_of(tie.src), ", but ",
                         difference.num_different,
                         " elements differ, the first at ", place,
                         "; one of them would be lost");
  return WithSide(absl::FailedPreconditionError(message), ErrorSide::kSource);
}

// A tie is cut along the first loop that has a step for each part. A tie
// without such a loop, which is small if there are few parts, belongs to one
// part.
std::vector<StridedPiece> CutTies(absl::Span<const StridedPiece> ties,
                                  const TieParts& parts) {
  std::vector<StridedPiece> some;
  for (size_t i = 0; i < ties.size(); ++i) {
    StridedPiece tie = ties[i];
    const auto loop = std::find_if(tie.loops.begin(), tie.loops.end(),
                                   [&](const StridedLoop& candidate) {
                                     return candidate.count >= parts.count;
                                   });
    if (loop == tie.loops.end()) {
      const uint64_t part = i % parts.count;
      if (part < parts.first || part >= parts.end) continue;
    } else {
      const uint64_t begin = PartBegin(loop->count, parts.first, parts.count);
      const uint64_t end = PartBegin(loop->count, parts.end, parts.count);
      if (begin == end) continue;
      if (loop->src_dim >= 0) {
        tie.src_base[static_cast<size_t>(loop->src_dim)] +=
            begin * loop->src_step;
      }
      tie.dst_base[static_cast<size_t>(loop->dst_dim)] +=
          begin * loop->dst_step;
      loop->count = end - begin;
    }
    some.push_back(std::move(tie));
  }
  return some;
}

}  // namespace

absl::Status CheckTies(FileSystem& fs, Checkpoint& checkpoint,
                       const TieCheckOptions& options) {
  const MappedEntries* const mapped = checkpoint.mapped();
  if (mapped == nullptr) return absl::OkStatus();
  std::vector<StridedPiece> all = mapped->ties;
  if (options.checks_padding) {
    const std::vector<StridedPiece>& paddings = mapped->report.paddings;
    all.insert(all.end(), paddings.begin(), paddings.end());
  }
  const std::vector<StridedPiece> ties = CutTies(all, options.parts);
  if (ties.empty()) return absl::OkStatus();
  std::vector<uint32_t> stored;
  for (const StridedPiece& tie : ties) {
    if (tie.src != StridedPiece::kZeros) {
      mapped->AppendStored(tie.src, stored);
    }
    mapped->AppendStored(tie.dst, stored);
  }
  DCP_RETURN_IF_ERROR(WithSide(checkpoint.LocateStored(stored, options.stop),
                               ErrorSide::kSource));
  TensorComparison comparison(checkpoint.files(), checkpoint.files(),
                              std::nullopt);
  std::vector<TensorPointer> tensors;
  for (const StridedPiece& tie : ties) {
    for (const PieceSide side : {PieceSide::kSrc, PieceSide::kDst}) {
      DCP_ASSIGN_OR_RETURN(tensors.emplace_back(), Visited(tie, side, *mapped));
    }
    const TensorEntry& a = tensors[tensors.size() - 2]->entry();
    comparison.Add(a, tensors.back()->entry(), a.dtype);
  }
  DCP_RETURN_IF_ERROR(comparison.Run(
      fs, {.memory_bytes = options.memory_bytes, .stop = options.stop}));
  for (size_t i = 0; i < ties.size(); ++i) {
    const ElementDifference& difference = comparison.difference(i);
    if (difference.num_different > 0) {
      return DifferenceError(checkpoint, ties[i], difference);
    }
  }
  return absl::OkStatus();
}

}  // namespace dcp
