// SPDX-License-Identifier: Apache-2.0
// Axes: how a tensor's dimensions consist of axes, as a mapping's rules write
// it: "(group (q + 1 + 1) 2 r) c". A dimension is a product of axes, the first
// of which varies slowest; one factor may be a sum with summands one after the
// other. A number is an axis with that size and that name, and "..." stands for
// the dimensions that are not named. Tensor names are not handled here. Pure;
// any thread.
#ifndef DCP_MAPPING_LANGUAGE_AXES_H_
#define DCP_MAPPING_LANGUAGE_AXES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp {

// Stands for the dimensions that no other axis names.
inline constexpr absl::string_view kRest = "...";

// The known axis sizes, at most kMaxAxisSize each. A number needs no entry.
using AxisSizes = absl::flat_hash_map<std::string, uint64_t>;

// Axes that are digits of one index, the slowest first; "1" is left out.
using AxisProduct = std::vector<std::string>;

struct AxisDim {
  AxisProduct before;
  std::vector<AxisProduct> summands;  // empty: no sum
  AxisProduct after;                  // empty without a sum
  bool is_rest = false;               // "..."
};

// How an axis moves through a tensor: the index times `step`, in dimension
// `dim`.
struct AxisWalk {
  std::string axis;
  uint64_t count = 0;
  size_t dim = 0;
  uint64_t step = 0;
};

// One summand of a term: the index where it begins, and the axes, sorted by
// dimension and falling step.
struct SummandWalk {
  std::vector<uint64_t> base;
  std::vector<AxisWalk> walks;

  const AxisWalk* Find(absl::string_view axis) const;
};

class Axes {
 public:
  // InvalidArgument for unbalanced parentheses, a + outside parentheses, two
  // sums, an axis that occurs twice in one summand, two "...", and for more
  // than kMaxMappingAxes axes or kMaxMappingSummands summands.
  static absl::StatusOr<Axes> Parse(absl::string_view text);

  const std::vector<AxisDim>& dims() const { return dims_; }
  size_t num_summands() const;
  bool has_rest() const;
  // One summand's axes, in order, without numbers and "...".
  std::vector<std::string> SummandAxes(size_t summand) const;

  // The same Axes with "..." replaced by `rank` axes named "...0", "...1" and
  // so on.
  Axes WithRest(size_t rank) const;
  // The same Axes with a dimension for each of `leading` in front.
  Axes WithLeading(absl::Span<const std::string> leading) const;

  // The methods below require that there is no "..." and, except for
  // UnknownAxes, that every axis has a size.

  // The axes in dimension `dim` that have no size, each once.
  std::vector<std::string> UnknownAxes(size_t dim,
                                       const AxisSizes& sizes) const;
  // A dimension's size; nullopt if it exceeds kMaxAxisSize.
  std::optional<uint64_t> DimExtent(size_t dim, const AxisSizes& sizes) const;
  // For each summand, how the axes move. InvalidArgument if a size exceeds
  // kMaxAxisSize.
  absl::StatusOr<std::vector<SummandWalk>> Walks(const AxisSizes& sizes) const;

 private:
  class Parser;

  std::vector<AxisDim> dims_;
};

// A dimension as a rule writes it: "(group (q + 1 + 1) 2 r)".
std::string ToString(const AxisDim& dim);

// One axis's size, either a number or from `sizes`; nullopt if it has none.
std::optional<uint64_t> FindAxisSize(absl::string_view axis,
                                     const AxisSizes& sizes);

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_AXES_H_
