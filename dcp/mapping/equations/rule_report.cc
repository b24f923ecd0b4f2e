// SPDX-License-Identifier: Apache-2.0
// Builds the report about each rule while rules are applied.
// Tested by tests/dcp/mapping/application/mapping_test.cc.
#include "dcp/mapping/equations/rule_report.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/bytes.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

// Whether elements that are adjacent in the dimension are so in memory.
bool IsInnermost(const Dims& shape, int dim) {
  return std::all_of(shape.begin() + dim + 1, shape.end(),
                     [](int64_t size) { return size == 1; });
}

// Whether a piece keeps the elements' order, and moves more than one at a time.
// The loops come in the destination's order.
bool CopiesRuns(const StridedPiece& piece, const Dims& src, const Dims& dst) {
  if (piece.loops.empty()) return true;
  const StridedLoop& inner = piece.loops.back();
  if (inner.src_dim < 0 || inner.src_step != 1 || inner.dst_step != 1 ||
      !IsInnermost(src, inner.src_dim) || !IsInnermost(dst, inner.dst_dim)) {
    return false;
  }
  for (size_t i = 1; i < piece.loops.size(); ++i) {
    const StridedLoop& outer = piece.loops[i - 1];
    const StridedLoop& loop = piece.loops[i];
    if (outer.src_dim < 0 || outer.src_dim > loop.src_dim ||
        (outer.src_dim == loop.src_dim && outer.src_step < loop.src_step)) {
      return false;
    }
  }
  return true;
}

// The tensors that an instance takes, by number.
using Taken = absl::flat_hash_map<uint32_t, const MappingTensor*>;

RuleClass PieceRuleClass(const StridedPiece& piece, const MappedTensors& made,
                         const Taken& taken) {
  if (piece.src == StridedPiece::kZeros) return RuleClass::kBox;
  // This is an entry in `rescaled`.
  if (piece.src >= made.num_sources) return RuleClass::kArithmetic;
  return CopiesRuns(piece, taken.at(piece.src)->shape,
                    made.tensors[piece.dst].shape)
             ? RuleClass::kBox
             : RuleClass::kStrided;
}

// `num_bytes` plus the tensor's bytes, or the largest number.
uint64_t PlusTensorBytes(const MappingTensor& tensor, uint64_t num_bytes) {
  const std::optional<int64_t> volume = CheckedVolume(tensor.shape);
  std::optional<uint64_t> sum;
  if (volume.has_value()) {
    sum = CheckedMul(static_cast<uint64_t>(*volume), ElementSize(tensor.dtype));
  }
  if (sum.has_value()) sum = CheckedAdd(num_bytes, *sum);
  return sum.value_or(std::numeric_limits<uint64_t>::max());
}

// "4 x [24, 32]".
std::string CountedShape(size_t count, const Dims& shape) {
  const std::string text = ShapeToString(shape);
  return count == 1 ? text : absl::StrCat(count, " x ", text);
}

std::string ShapesText(const EquationInstance& instance,
                       const EquationSources& sources,
                       const InstanceResult& result) {
  std::vector<std::string> src;
  for (const auto& found : instance.found) {
    if (found.empty()) continue;
    const MappingTensor& tensor =
        *sources.sources[found.begin()->second].tensor;
    src.push_back(CountedShape(found.size(), tensor.shape));
  }
  const std::vector<MappingTensor>& made = result.made.tensors;
  std::vector<std::string> dst;
  for (size_t i = result.first_tensor; i < made.size();) {
    size_t end = i + 1;
    while (end < made.size() && made[end].shape == made[i].shape) ++end;
    dst.push_back(CountedShape(end - i, made[i].shape));
    i = end;
  }
  const std::string from = absl::StrJoin(src, ", ");
  const std::string to = absl::StrJoin(dst, ", ");
  return from == to ? to : absl::StrCat(from, " -> ", to);
}

void Append(const std::vector<uint32_t>& more, std::vector<uint32_t>& numbers) {
  numbers.insert(numbers.end(), more.begin(), more.end());
}

void Merge(const RuleReport& more, RuleReport& report) {
  report.rule_class = std::max(report.rule_class, more.rule_class);
  report.num_instances += more.num_instances;
  report.num_sources += more.num_sources;
  report.num_destinations += more.num_destinations;
  report.num_pieces += more.num_pieces;
  report.num_bytes = CheckedAdd(report.num_bytes, more.num_bytes)
                         .value_or(std::numeric_limits<uint64_t>::max());
  Append(more.sources, report.sources);
  Append(more.destinations, report.destinations);
}

}  // namespace

void ReportInstance(const EquationInstance& instance,
                    const EquationSources& sources,
                    const InstanceResult& result, RuleReport& report) {
  if (report.num_instances == 0) {
    report.shapes = ShapesText(instance, sources, result);
  }
  ++report.num_instances;
  Taken taken;
  for (const auto& found : instance.found) {
    report.num_sources += found.size();
    for (const auto& [at, place] : found) {
      const EquationSources::Source& source = sources.sources[place];
      report.sources.push_back(source.number);
      taken.emplace(source.number, source.tensor);
    }
  }
  const MappedTensors& made = result.made;
  report.num_destinations += made.tensors.size() - result.first_tensor;
  for (size_t i = result.first_tensor; i < made.tensors.size(); ++i) {
    report.destinations.push_back(static_cast<uint32_t>(i));
    report.num_bytes = PlusTensorBytes(made.tensors[i], report.num_bytes);
  }
  report.num_pieces += made.pieces.size() - result.first_piece;
  for (size_t i = result.first_piece; i < made.pieces.size(); ++i) {
    const RuleClass of_piece = PieceRuleClass(made.pieces[i], made, taken);
    report.rule_class = std::max(report.rule_class, of_piece);
  }
}

std::vector<RuleReport> MergeReports(std::vector<RuleReport> reports) {
  std::stable_sort(reports.begin(), reports.end(),
                   [](const RuleReport& a, const RuleReport& b) {
                     return std::pair(a.line, a.text) <
                            std::pair(b.line, b.text);
                   });
  std::vector<RuleReport> merged;
  for (RuleReport& report : reports) {
    if (merged.empty() || merged.back().line != report.line ||
        merged.back().text != report.text) {
      merged.push_back(std::move(report));
    } else {
      Merge(report, merged.back());
    }
  }
  return merged;
}

}  // namespace dcp
