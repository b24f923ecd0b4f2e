// SPDX-License-Identifier: Apache-2.0
// Axes: how the dimensions of a tensor are made of axes, as the rules of a
// mapping write it: "(group (q + 1 + 1) 2 r) c". A dimension is a product of
// axes, the first of which varies slowest; one factor may be a sum, whose
// summands lie one after the other. A number is an axis of that size whose name
// is the number, and "..." stands for the dimensions that are not named. It
// knows nothing of names of tensors. Pure; any thread.
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

// The sizes of axes that are known, at most kMaxAxisSize each. A number needs
// no entry.
using AxisSizes = absl::flat_hash_map<std::string, uint64_t>;

// Axes whose indices are digits of one index, the slowest first; "1" is left
// out.
using AxisProduct = std::vector<std::string>;

struct AxisDim {
  AxisProduct before;
  std::vector<AxisProduct> summands;  // empty: no sum
  AxisProduct after;                  // empty without a sum
  bool is_rest = false;               // "..."
};

// How an axis moves through a tensor: its index times `step`, in dimension
// `dim`.
struct AxisWalk {
  std::string axis;
  uint64_t count = 0;
  size_t dim = 0;
  uint64_t step = 0;
};

// One summand of a term: the index at which it begins, and its axes, by
// dimension and falling step.
struct SummandWalk {
  std::vector<uint64_t> base;
  std::vector<AxisWalk> walks;

  const AxisWalk* Find(absl::string_view axis) const;
};

class Axes {
 public:
  // InvalidArgument for unbalanced parentheses, a + outside of them, two sums,
  // an axis that occurs twice in one summand, two "...", and for more than
  // kMaxMappingAxes axes or kMaxMappingSummands summands.
  static absl::StatusOr<Axes> Parse(absl::string_view text);

  const std::vector<AxisDim>& dims() const { return dims_; }
  size_t num_summands() const;
  bool has_rest() const;
  // The axes of one summand, in order, without numbers and "...".
  std::vector<std::string> AxesOf(size_t summand) const;

  // The same with `rank` dimensions of axes "...0", "...1" and so on in place
  // of "...".
  Axes WithRest(size_t rank) const;
  // The same with a dimension for each of `leading` in front.
  Axes WithLeading(absl::Span<const std::string> leading) const;

  // Those below require that there is no "..." and, except for UnknownAxes,
  // that every axis has a size.

  // Which axes of dimension `dim` have no size, each once.
  std::vector<std::string> UnknownAxes(size_t dim,
                                       const AxisSizes& sizes) const;
  // The size of a dimension; nullopt if it exceeds kMaxAxisSize.
  std::optional<uint64_t> ExtentOf(size_t dim, const AxisSizes& sizes) const;
  // For each summand, how its axes move. InvalidArgument if a size exceeds
  // kMaxAxisSize.
  absl::StatusOr<std::vector<SummandWalk>> Walks(const AxisSizes& sizes) const;

 private:
  class Parser;

  std::vector<AxisDim> dims_;
};

// A dimension as a rule writes it: "(group (q + 1 + 1) 2 r)".
std::string ToString(const AxisDim& dim);

// The size of one axis, a number or one of `sizes`; nullopt if it has none.
std::optional<uint64_t> SizeOfAxis(absl::string_view axis,
                                   const AxisSizes& sizes);

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_AXES_H_
