// Tested by tests/tools/dcp_convert/map_options_test.cc.
#include "dcp/checkpoint/read/tie_check.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/mapped_tensor.h"
#include "dcp/checkpoint/read/tensor_comparison.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

using TensorPointer = std::unique_ptr<const MappedTensor>;

// The elements that one side of a tie visits, as a tensor with a dimension for
// each of its loops.
absl::StatusOr<TensorPointer> Visited(const StridedPiece& tie, PieceSide side,
                                      const MappedEntries& mapped) {
  const bool is_src = side == PieceSide::kSrc;
  StridedPiece piece;
  piece.src = is_src ? tie.src : tie.dst;
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
  return MappedTensor::Make(mapped.sources[piece.src]->dtype, shape, {piece},
                            mapped.sources);
}

// The index in the tensor of element `number` of what was visited.
Dims PlaceOf(const StridedPiece& tie, uint64_t number) {
  Dims place(tie.dst_base.begin(), tie.dst_base.end());
  for (size_t i = tie.loops.size(); i-- > 0;) {
    const StridedLoop& loop = tie.loops[i];
    place[static_cast<size_t>(loop.dst_dim)] +=
        static_cast<int64_t>(number % loop.count * loop.dst_step);
    number /= loop.count;
  }
  return place;
}

absl::Status Differs(const Checkpoint& checkpoint, const StridedPiece& tie,
                     const ElementDifference& difference) {
  const MappedEntries& mapped = *checkpoint.mapped();
  const auto name_of = [&](uint32_t source) -> const std::string& {
    return checkpoint.stored_entries()[mapped.entry_of_source[source]].fqn;
  };
  return WithSide(absl::FailedPreconditionError(absl::StrCat(
                      "the mapping takes ", name_of(tie.dst), " for equal to ",
                      name_of(tie.src), ", but ", difference.num_different,
                      " elements differ, the first at ",
                      ShapeToString(PlaceOf(tie, difference.first_different)),
                      "; one of them would be lost")),
                  ErrorSide::kSource);
}

}  // namespace

absl::Status CheckTies(FileSystem& fs, Checkpoint& checkpoint,
                       uint64_t memory_bytes, const std::stop_token& stop) {
  const MappedEntries* const mapped = checkpoint.mapped();
  if (mapped == nullptr || mapped->ties.empty()) return absl::OkStatus();
  std::vector<uint32_t> stored;
  for (const StridedPiece& tie : mapped->ties) {
    stored.push_back(mapped->entry_of_source[tie.src]);
    stored.push_back(mapped->entry_of_source[tie.dst]);
  }
  DCP_RETURN_IF_ERROR(
      WithSide(checkpoint.LocateStored(stored, stop), ErrorSide::kSource));
  TensorComparison comparison(checkpoint.files(), checkpoint.files(),
                              std::nullopt);
  std::vector<TensorPointer> tensors;
  for (const StridedPiece& tie : mapped->ties) {
    for (const PieceSide side : {PieceSide::kSrc, PieceSide::kDst}) {
      DCP_ASSIGN_OR_RETURN(tensors.emplace_back(), Visited(tie, side, *mapped));
    }
    const TensorEntry& a = tensors[tensors.size() - 2]->entry();
    comparison.Add(a, tensors.back()->entry(), a.dtype);
  }
  DCP_RETURN_IF_ERROR(
      comparison.Run(fs, {.memory_bytes = memory_bytes, .stop = stop}));
  for (size_t i = 0; i < mapped->ties.size(); ++i) {
    const ElementDifference& difference = comparison.difference(i);
    if (difference.num_different > 0) {
      return Differs(checkpoint, mapped->ties[i], difference);
    }
  }
  return absl::OkStatus();
}

}  // namespace dcp
