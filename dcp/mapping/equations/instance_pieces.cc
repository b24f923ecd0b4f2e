// SPDX-License-Identifier: Apache-2.0
// Makes the destinations and pieces for one instance of a rule.
// Tested by tests/dcp/mapping/equations/equation_test.cc.
//
// The k-th source summand equals the k-th destination summand. Each axis
// becomes a loop, which walks in both. An index that is part of a name on one
// side is fixed: there is a piece for each value, and on the other side the
// index moves the place where the piece begins.
#include "dcp/mapping/equations/instance_pieces.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_limits.h"

namespace dcp {
namespace {

// The product of `counts`; a number above any limit if it does not fit.
uint64_t BoundedProduct(const std::vector<uint64_t>& counts) {
  uint64_t product = 1;
  bool is_empty = false;
  for (const uint64_t count : counts) {
    is_empty = is_empty || count == 0;
    product = CheckedMul(product, count).value_or(kMaxAxisSize);
  }
  return is_empty ? 0 : product;
}

// The n-th combination of values below `counts`, the last varying fastest.
std::vector<uint64_t> IndicesAt(uint64_t n,
                                const std::vector<uint64_t>& counts) {
  std::vector<uint64_t> indices(counts.size());
  for (size_t i = counts.size(); i > 0; --i) {
    indices[i - 1] = n % counts[i - 1];
    n /= counts[i - 1];
  }
  return indices;
}

size_t NameIndex(const std::vector<std::string>& names,
                 const std::string& name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) -
                             names.begin());
}

// A loop that stays where it is in the source.
StridedLoop LoopInto(const AxisWalk& walk) {
  return {.count = walk.count,
          .src_dim = -1,
          .src_step = 0,
          .dst_dim = static_cast<int>(walk.dim),
          .dst_step = walk.step};
}

void WalkSource(const AxisWalk& walk, StridedLoop& loop) {
  loop.src_dim = static_cast<int>(walk.dim);
  loop.src_step = walk.step;
}

}  // namespace

InstancePieces::InstancePieces(const MappingRule& rule,
                               const EquationSides& sides,
                               const EquationInstance& instance,
                               const InstanceSizes& sizes,
                               const EquationSources& sources,
                               MappedBuilder& builder)
    : rule_(rule),
      sides_(sides),
      instance_(instance),
      sizes_(sizes),
      sources_(sources),
      builder_(builder) {
  for (const IndexRange& range : instance.stacked) {
    stacked_counts_.push_back(range.count);
  }
  for (const std::string& index : sides.spread) {
    spread_counts_.push_back(sizes.sizes.at(index));
  }
  num_stacked_ = BoundedProduct(stacked_counts_);
  num_spread_ = BoundedProduct(spread_counts_);
}

absl::Status InstancePieces::Make(const std::string& to) {
  const size_t first_piece = builder_.result().pieces.size();
  DCP_RETURN_IF_ERROR(AddDestinations());
  if (sizes_.are_scalars) {
    DCP_RETURN_IF_ERROR(AddScalars());
    return AddCopies(to, first_piece);
  }
  std::vector<std::vector<SummandWalk>> src_walks;
  std::vector<std::vector<SummandWalk>> dst_walks;
  for (const Axes& axes : sizes_.src_axes) {
    DCP_ASSIGN_OR_RETURN(src_walks.emplace_back(), axes.Walks(sizes_.sizes));
  }
  for (const Axes& axes : sizes_.dst_axes) {
    DCP_ASSIGN_OR_RETURN(dst_walks.emplace_back(), axes.Walks(sizes_.sizes));
  }
  size_t src_term = 0;
  size_t src_summand = 0;
  for (size_t dst_term = 0; dst_term < dst_walks.size(); ++dst_term) {
    for (const SummandWalk& dst : dst_walks[dst_term]) {
      // The rule's reader has counted both sides' summands.
      DCP_CHECK(src_term < src_walks.size());
      DCP_RETURN_IF_ERROR(AddPair({.src_term = src_term,
                                   .dst_term = dst_term,
                                   .src = &src_walks[src_term][src_summand],
                                   .dst = &dst}));
      if (++src_summand == src_walks[src_term].size()) {
        ++src_term;
        src_summand = 0;
      }
    }
  }
  return AddCopies(to, first_piece);
}

absl::Status InstancePieces::AddDestinations() {
  destinations_.resize(sides_.dst.size());
  for (size_t term = 0; term < sides_.dst.size(); ++term) {
    const std::optional<NameTemplate>& name = sides_.dst[term].name;
    if (!name.has_value()) continue;
    // Checked before these numbers are used to allocate.
    DCP_RETURN_IF_ERROR(builder_.Reserve(num_spread_));
    Dims shape;
    if (!sizes_.are_scalars) {
      const Axes& axes = sizes_.dst_axes[term];
      for (size_t dim = 0; dim < axes.dims().size(); ++dim) {
        const std::optional<uint64_t> extent =
            axes.DimExtent(dim, sizes_.sizes);
        if (!extent.has_value()) {
          return absl::InvalidArgumentError(
              absl::StrCat("the size of ", ToString(axes.dims()[dim]),
                           " exceeds ", kMaxAxisSize));
        }
        shape.push_back(static_cast<int64_t>(*extent));
      }
    }
    const std::optional<int64_t> volume = CheckedVolume(shape);
    if (!volume.has_value() || static_cast<uint64_t>(*volume) >
                                   kMaxAxisSize / ElementSize(sizes_.dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name->text(), " would have the shape ",
                       ShapeToString(shape), ", which is too large"));
    }
    for (uint64_t n = 0; n < num_spread_; ++n) {
      const Indices spread = IndicesAt(n, spread_counts_);
      std::vector<NameValue> values;
      for (const NameTemplate::Variable& variable : name->variables()) {
        const auto it =
            std::find(sides_.shared.begin(), sides_.shared.end(), variable);
        if (it != sides_.shared.end()) {
          values.push_back(
              instance_
                  .shared[static_cast<size_t>(it - sides_.shared.begin())]);
          continue;
        }
        const auto range = sides_.ranges.find(variable.name);
        const uint64_t first =
            range == sides_.ranges.end() ? 0 : range->second.first;
        values.push_back(
            {.number = first + spread[NameIndex(sides_.spread, variable.name)],
             .text = {}});
      }
      DCP_ASSIGN_OR_RETURN(
          const uint32_t number,
          builder_.AddTensor({.name = sources_.full_name(name->Format(values)),
                              .dtype = sizes_.dtype,
                              .shape = shape}));
      destinations_[term].push_back(number);
    }
  }
  return absl::OkStatus();
}

// The additional names of the first term's destination.
absl::Status InstancePieces::AddCopies(const std::string& to,
                                       size_t first_piece) {
  const auto it = rule_.copies.find(to);
  if (it == rule_.copies.end()) return absl::OkStatus();
  const uint32_t first = destinations_[0][0];
  for (const std::string& name : it->second) {
    MappingTensor copy = builder_.tensor(first);
    copy.name = sources_.full_name(name);
    builder_.result().copied.push_back(copy.name);
    DCP_ASSIGN_OR_RETURN(const uint32_t number,
                         builder_.AddTensor(std::move(copy)));
    DCP_RETURN_IF_ERROR(builder_.CopyPieces(first_piece, first, number));
  }
  return absl::OkStatus();
}

absl::Status InstancePieces::AddScalars() {
  std::optional<uint32_t> first;
  for (const auto& found : instance_.found) {
    for (const auto& [at, place] : found) {
      const uint32_t number = sources_.sources[place].number;
      if (!first.has_value()) {
        first = number;
        continue;
      }
      DCP_RETURN_IF_ERROR(builder_.Reserve(1));
      DCP_RETURN_IF_ERROR(builder_.AddTie(WholePiece(*first, number, {})));
    }
  }
  for (const std::vector<uint32_t>& numbers : destinations_) {
    for (const uint32_t number : numbers) {
      DCP_RETURN_IF_ERROR(builder_.Reserve(1));
      DCP_RETURN_IF_ERROR(builder_.AddPiece(WholePiece(*first, number, {})));
    }
  }
  return absl::OkStatus();
}

bool InstancePieces::IsStacked(const std::string& axis) const {
  return NameIndex(sides_.stacked, axis) < sides_.stacked.size();
}

bool InstancePieces::IsSpread(const std::string& axis) const {
  return NameIndex(sides_.spread, axis) < sides_.spread.size();
}

uint32_t InstancePieces::SourceAt(size_t term, const Indices& stacked) const {
  Indices at = stacked;
  for (size_t v = 0; v < at.size(); ++v) at[v] += instance_.stacked[v].first;
  return sources_.sources[instance_.found[term].at(at)].number;
}

absl::Status InstancePieces::AddPair(const Pair& pair) {
  const bool has_src = sides_.src[pair.src_term].name.has_value();
  const bool has_dst = sides_.dst[pair.dst_term].name.has_value();
  if (has_src && has_dst) return AddTensors(pair);
  if (has_src) return AddPaddings(pair);
  if (has_dst) return AddConstant(pair);
  return absl::OkStatus();
}

absl::Status InstancePieces::AddConstant(const Pair& pair) {
  DCP_RETURN_IF_ERROR(builder_.Reserve(num_spread_));
  for (const uint32_t dst : destinations_[pair.dst_term]) {
    StridedPiece piece;
    piece.src = StridedPiece::kZeros;
    piece.dst = dst;
    piece.dst_base.assign(pair.dst->base.begin(), pair.dst->base.end());
    for (const AxisWalk& walk : pair.dst->walks) {
      piece.loops.push_back(LoopInto(walk));
    }
    DCP_RETURN_IF_ERROR(builder_.AddPiece(std::move(piece)));
  }
  return absl::OkStatus();
}

// The source elements that correspond to a constant in the destinations.
absl::Status InstancePieces::AddPaddings(const Pair& pair) {
  DCP_RETURN_IF_ERROR(builder_.Reserve(num_stacked_));
  for (uint64_t n = 0; n < num_stacked_; ++n) {
    StridedPiece piece;
    piece.src = StridedPiece::kZeros;
    piece.dst = SourceAt(pair.src_term, IndicesAt(n, stacked_counts_));
    piece.dst_base.assign(pair.src->base.begin(), pair.src->base.end());
    for (const AxisWalk& walk : pair.src->walks) {
      piece.loops.push_back(LoopInto(walk));
    }
    DCP_RETURN_IF_ERROR(builder_.AddPadding(std::move(piece)));
  }
  return absl::OkStatus();
}

absl::Status InstancePieces::AddTensors(const Pair& pair) {
  const std::optional<uint64_t> count = CheckedMul(num_stacked_, num_spread_);
  DCP_RETURN_IF_ERROR(builder_.Reserve(count.value_or(kMaxAxisSize)));
  for (uint64_t n = 0; n < num_stacked_; ++n) {
    const Indices stacked = IndicesAt(n, stacked_counts_);
    DCP_RETURN_IF_ERROR(AddTies(pair, stacked));
    // An index that the destination does not have has the same value for all:
    // the first one is written.
    bool is_written = true;
    for (size_t v = 0; v < stacked.size(); ++v) {
      is_written = is_written && (stacked[v] == 0 ||
                                  pair.dst->Find(sides_.stacked[v]) != nullptr);
    }
    if (!is_written) continue;
    for (uint64_t m = 0; m < num_spread_; ++m) {
      StridedPiece piece =
          MakePiece(pair, stacked, IndicesAt(m, spread_counts_));
      piece.dst = destinations_[pair.dst_term][m];
      DCP_RETURN_IF_ERROR(builder_.AddPiece(std::move(piece)));
    }
  }
  return absl::OkStatus();
}

StridedPiece InstancePieces::MakePiece(const Pair& pair, const Indices& stacked,
                                       const Indices& spread) const {
  StridedPiece piece;
  piece.src = SourceAt(pair.src_term, stacked);
  piece.src_base.assign(pair.src->base.begin(), pair.src->base.end());
  piece.dst_base.assign(pair.dst->base.begin(), pair.dst->base.end());
  for (size_t v = 0; v < spread.size(); ++v) {
    const AxisWalk* walk = pair.src->Find(sides_.spread[v]);
    if (walk != nullptr) piece.src_base[walk->dim] += spread[v] * walk->step;
  }
  for (size_t v = 0; v < stacked.size(); ++v) {
    const AxisWalk* walk = pair.dst->Find(sides_.stacked[v]);
    if (walk != nullptr) piece.dst_base[walk->dim] += stacked[v] * walk->step;
  }
  for (const AxisWalk& walk : pair.dst->walks) {
    if (IsStacked(walk.axis)) continue;
    StridedLoop loop = LoopInto(walk);
    const AxisWalk* src = pair.src->Find(walk.axis);
    if (src != nullptr) WalkSource(*src, loop);
    piece.loops.push_back(loop);
  }
  return piece;
}

// Elements that must be equal because the destination lacks an axis or index:
// the source at these stacked indices equals the one that is written.
absl::Status InstancePieces::AddTies(const Pair& pair, const Indices& stacked) {
  Indices written = stacked;
  for (size_t v = 0; v < stacked.size(); ++v) {
    if (pair.dst->Find(sides_.stacked[v]) == nullptr) written[v] = 0;
  }
  const auto is_lacking = [&](const AxisWalk& walk) {
    return pair.dst->Find(walk.axis) == nullptr && !IsSpread(walk.axis) &&
           walk.count > 1;
  };
  const bool has_lacking =
      std::any_of(pair.src->walks.begin(), pair.src->walks.end(), is_lacking);
  if (written == stacked && !has_lacking) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(builder_.Reserve(1));
  StridedPiece tie;
  tie.src = SourceAt(pair.src_term, written);
  tie.dst = SourceAt(pair.src_term, stacked);
  tie.src_base.assign(pair.src->base.begin(), pair.src->base.end());
  tie.dst_base = tie.src_base;
  for (const AxisWalk& walk : pair.src->walks) {
    StridedLoop loop = LoopInto(walk);
    if (!is_lacking(walk)) WalkSource(walk, loop);
    tie.loops.push_back(loop);
  }
  return builder_.AddTie(std::move(tie));
}

}  // namespace dcp
