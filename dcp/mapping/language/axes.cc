// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/language/axes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/mapping/language/word_bytes.h"

namespace dcp {
namespace {

// Numbers in rules are small: 2 halves, 3 parts.
constexpr uint32_t kMaxNumber = 1 << 20;

bool IsNumber(absl::string_view axis) {
  return absl::ascii_isdigit(static_cast<unsigned char>(axis[0]));
}

std::optional<uint64_t> Limited(std::optional<uint64_t> size) {
  return size.has_value() && *size <= kMaxAxisSize ? size : std::nullopt;
}

std::optional<uint64_t> Times(std::optional<uint64_t> a,
                              std::optional<uint64_t> b) {
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  return Limited(CheckedMul(*a, *b));
}

// The product of the sizes, starting at `first`.
std::optional<uint64_t> Extent(const AxisProduct& product,
                               const AxisSizes& sizes, size_t first = 0) {
  std::optional<uint64_t> extent = 1;
  for (size_t i = first; i < product.size(); ++i) {
    extent = Times(extent, FindAxisSize(product[i], sizes));
  }
  return extent;
}

std::optional<uint64_t> SumExtent(const AxisDim& dim, const AxisSizes& sizes) {
  if (dim.summands.empty()) return 1;
  std::optional<uint64_t> sum = 0;
  for (const AxisProduct& summand : dim.summands) {
    const std::optional<uint64_t> extent = Extent(summand, sizes);
    if (!sum.has_value() || !extent.has_value()) return std::nullopt;
    sum = Limited(CheckedAdd(*sum, *extent));
  }
  return sum;
}

}  // namespace

std::optional<uint64_t> FindAxisSize(absl::string_view axis,
                                     const AxisSizes& sizes) {
  if (IsNumber(axis)) {
    uint64_t number = 0;
    return absl::SimpleAtoi(axis, &number) ? std::optional(number)
                                           : std::nullopt;
  }
  const auto it = sizes.find(axis);
  return it == sizes.end() ? std::nullopt : std::optional(it->second);
}

const AxisWalk* SummandWalk::Find(absl::string_view axis) const {
  const auto it =
      std::find_if(walks.begin(), walks.end(),
                   [&](const AxisWalk& walk) { return walk.axis == axis; });
  return it == walks.end() ? nullptr : &*it;
}

class Axes::Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text), rest_(text) {}

  absl::StatusOr<std::vector<AxisDim>> Parse() {
    std::vector<AxisDim> dims;
    while (true) {
      DCP_ASSIGN_OR_RETURN(const absl::string_view token, Peek());
      if (token.empty()) return dims;
      AxisDim dim;
      if (token == kRest) {
        Drop(token);
        dim.is_rest = true;
      } else if (token == "(") {
        Drop(token);
        DCP_RETURN_IF_ERROR(ParseProduct(dim));
      } else {
        DCP_RETURN_IF_ERROR(ParseAxis(dim.before));
      }
      dims.push_back(std::move(dim));
    }
  }

 private:
  absl::Status Refuse(absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("the axes \"", text_, "\" ", why));
  }

  // The next word or sign; empty at the end.
  absl::StatusOr<absl::string_view> Peek() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    if (rest_.empty()) return rest_;
    if (absl::StartsWith(rest_, kRest)) return rest_.substr(0, kRest.size());
    if (absl::StrContains("()+", rest_[0])) return rest_.substr(0, 1);
    size_t length = 0;
    while (length < rest_.size() && IsWordByte(rest_[length])) ++length;
    if (length > 0) return rest_.substr(0, length);
    return Refuse(absl::StrCat("have \"", rest_.substr(0, 1),
                               "\", which is neither an axis nor one of ( ) + "
                               "..."));
  }

  void Drop(absl::string_view token) { rest_.remove_prefix(token.size()); }

  // Parses the rest of a dimension after "(", up to and including ")".
  absl::Status ParseProduct(AxisDim& dim) {
    if (++depth_ > kMaxFormulaDepth) return Refuse("are nested too deeply");
    while (true) {
      AxisProduct& product = dim.summands.empty() ? dim.before : dim.after;
      DCP_ASSIGN_OR_RETURN(const absl::string_view token, Peek());
      if (token == "(") {
        Drop(token);
        DCP_RETURN_IF_ERROR(ParseFactor(dim));
      } else if (token == ")") {
        Drop(token);
        --depth_;
        return absl::OkStatus();
      } else if (token == "+") {
        // The whole dimension is a sum, and the part read so far is the first
        // summand.
        if (!dim.summands.empty()) return Refuse("have two sums");
        AxisProduct first = std::exchange(dim.before, {});
        DCP_RETURN_IF_ERROR(ParseSummands(std::move(first), dim));
        --depth_;
        return absl::OkStatus();
      } else {
        DCP_RETURN_IF_ERROR(ParseAxis(product));
      }
    }
  }

  // A factor in parentheses: a product, which continues the one around it, or a
  // sum.
  absl::Status ParseFactor(AxisDim& dim) {
    AxisDim inner;
    DCP_RETURN_IF_ERROR(ParseProduct(inner));
    AxisProduct& product = dim.summands.empty() ? dim.before : dim.after;
    product.insert(product.end(), inner.before.begin(), inner.before.end());
    if (inner.summands.empty()) return absl::OkStatus();
    if (!dim.summands.empty()) return Refuse("have two sums");
    dim.summands = std::move(inner.summands);
    dim.after = std::move(inner.after);
    return absl::OkStatus();
  }

  // From a "+" to the ")" behind the last summand.
  absl::Status ParseSummands(AxisProduct first, AxisDim& dim) {
    dim.summands.push_back(std::move(first));
    while (true) {
      DCP_ASSIGN_OR_RETURN(const absl::string_view token, Peek());
      if (token == "+") {
        Drop(token);
        dim.summands.emplace_back();
      } else if (token == ")") {
        Drop(token);
        return absl::OkStatus();
      } else if (token == "(") {
        Drop(token);
        AxisDim inner;
        DCP_RETURN_IF_ERROR(ParseProduct(inner));
        if (!inner.summands.empty()) return Refuse("have two sums");
        dim.summands.back().insert(dim.summands.back().end(),
                                   inner.before.begin(), inner.before.end());
      } else {
        DCP_RETURN_IF_ERROR(ParseAxis(dim.summands.back()));
      }
      if (dim.summands.size() > kMaxMappingSummands) {
        return Refuse(
            absl::StrCat("have more than ", kMaxMappingSummands, " summands"));
      }
    }
  }

  absl::Status ParseAxis(AxisProduct& product) {
    DCP_ASSIGN_OR_RETURN(const absl::string_view token, Peek());
    if (token.empty()) return Refuse("lack a \")\"");
    if (token == ")") return Refuse("have a \")\" without a \"(\"");
    if (token == "+") return Refuse("have a + outside of parentheses");
    if (token == kRest) return Refuse("have ... inside of parentheses");
    Drop(token);
    if (IsNumber(token)) {
      uint32_t number = 0;
      if (!absl::SimpleAtoi(token, &number) || number == 0 ||
          number > kMaxNumber || absl::StrCat(number) != token) {
        return Refuse(absl::StrCat("have ", token, ", which is not a number ",
                                   "from 1 to ", kMaxNumber));
      }
      if (number == 1) return absl::OkStatus();
    }
    product.emplace_back(token);
    return absl::OkStatus();
  }

  absl::string_view text_;
  absl::string_view rest_;
  size_t depth_ = 0;
};

absl::StatusOr<Axes> Axes::Parse(absl::string_view text) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the axes \"", text, "\" ", why));
  };
  if (text.size() > kMaxMappingTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "axes of ", text.size(), " bytes exceed ", kMaxMappingTextBytes));
  }
  Axes axes;
  DCP_ASSIGN_OR_RETURN(axes.dims_, Parser(text).Parse());
  size_t num_sums = 0;
  size_t num_rests = 0;
  size_t num_axes = 0;
  for (const AxisDim& dim : axes.dims_) {
    num_sums += dim.summands.empty() ? 0 : 1;
    num_rests += dim.is_rest ? 1 : 0;
    num_axes += dim.before.size() + dim.after.size();
    for (const AxisProduct& summand : dim.summands) num_axes += summand.size();
  }
  if (num_sums > 1) return refuse("have two sums");
  if (num_rests > 1) return refuse("have ... twice");
  if (num_axes > kMaxMappingSummands * kMaxMappingAxes) {
    return refuse("have too many axes");
  }
  for (size_t k = 0; k < axes.num_summands(); ++k) {
    std::set<std::string> seen;
    size_t count = 0;
    for (const AxisDim& dim : axes.dims_) {
      const AxisProduct none;
      const AxisProduct& summand =
          dim.summands.empty() ? none : dim.summands[k];
      for (const AxisProduct* part : {&dim.before, &summand, &dim.after}) {
        for (const std::string& axis : *part) {
          if (!seen.insert(axis).second) {
            return refuse(absl::StrCat("have ", axis, " twice"));
          }
          ++count;
        }
      }
    }
    if (count > kMaxMappingAxes) {
      return refuse(absl::StrCat("have more than ", kMaxMappingAxes, " axes"));
    }
  }
  return axes;
}

size_t Axes::num_summands() const {
  for (const AxisDim& dim : dims_) {
    if (!dim.summands.empty()) return dim.summands.size();
  }
  return 1;
}

bool Axes::has_rest() const {
  return std::any_of(dims_.begin(), dims_.end(),
                     [](const AxisDim& dim) { return dim.is_rest; });
}

std::vector<std::string> Axes::SummandAxes(size_t summand) const {
  std::vector<std::string> axes;
  const auto add = [&](const AxisProduct& product) {
    for (const std::string& axis : product) {
      if (!IsNumber(axis)) axes.push_back(axis);
    }
  };
  for (const AxisDim& dim : dims_) {
    add(dim.before);
    if (!dim.summands.empty()) add(dim.summands[summand]);
    add(dim.after);
  }
  return axes;
}

Axes Axes::WithRest(size_t rank) const {
  Axes axes;
  for (const AxisDim& dim : dims_) {
    if (!dim.is_rest) {
      axes.dims_.push_back(dim);
      continue;
    }
    for (size_t i = 0; i < rank; ++i) {
      AxisDim named;
      named.before = {absl::StrCat(kRest, i)};
      axes.dims_.push_back(std::move(named));
    }
  }
  return axes;
}

Axes Axes::WithLeading(absl::Span<const std::string> leading) const {
  Axes axes;
  for (const std::string& axis : leading) {
    AxisDim dim;
    dim.before = {axis};
    axes.dims_.push_back(std::move(dim));
  }
  axes.dims_.insert(axes.dims_.end(), dims_.begin(), dims_.end());
  return axes;
}

std::vector<std::string> Axes::UnknownAxes(size_t dim,
                                           const AxisSizes& sizes) const {
  std::vector<std::string> unknown;
  const auto add = [&](const AxisProduct& product) {
    for (const std::string& axis : product) {
      if (!FindAxisSize(axis, sizes).has_value() &&
          std::find(unknown.begin(), unknown.end(), axis) == unknown.end()) {
        unknown.push_back(axis);
      }
    }
  };
  add(dims_[dim].before);
  for (const AxisProduct& summand : dims_[dim].summands) add(summand);
  add(dims_[dim].after);
  return unknown;
}

std::optional<uint64_t> Axes::DimExtent(size_t dim,
                                        const AxisSizes& sizes) const {
  const AxisDim& d = dims_[dim];
  return Times(Times(Extent(d.before, sizes), SumExtent(d, sizes)),
               Extent(d.after, sizes));
}

absl::StatusOr<std::vector<SummandWalk>> Axes::Walks(
    const AxisSizes& sizes) const {
  std::vector<SummandWalk> result(num_summands());
  bool overflows = false;
  const auto checked = [&](std::optional<uint64_t> size) {
    overflows = overflows || !size.has_value();
    return size.value_or(0);
  };
  for (size_t d = 0; d < dims_.size(); ++d) {
    const AxisDim& dim = dims_[d];
    const std::optional<uint64_t> after = Extent(dim.after, sizes);
    const std::optional<uint64_t> sum = SumExtent(dim, sizes);
    uint64_t start = 0;
    for (size_t k = 0; k < result.size(); ++k) {
      std::vector<AxisWalk>& walks = result[k].walks;
      const auto add = [&](const AxisProduct& product,
                           std::optional<uint64_t> step) {
        for (size_t i = 0; i < product.size(); ++i) {
          walks.push_back(
              {.axis = product[i],
               .count = checked(FindAxisSize(product[i], sizes)),
               .dim = d,
               .step = checked(Times(Extent(product, sizes, i + 1), step))});
        }
      };
      add(dim.before, Times(sum, after));
      if (!dim.summands.empty()) add(dim.summands[k], after);
      add(dim.after, 1);
      result[k].base.push_back(checked(Times(start, after)));
      if (!dim.summands.empty()) {
        start += checked(Extent(dim.summands[k], sizes));
      }
    }
    checked(DimExtent(d, sizes));
    if (overflows) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the size of ", ToString(dim), " exceeds ", kMaxAxisSize));
    }
  }
  return result;
}

std::string ToString(const AxisDim& dim) {
  if (dim.is_rest) return std::string(kRest);
  std::vector<std::string> factors = dim.before;
  if (!dim.summands.empty()) {
    std::vector<std::string> summands;
    for (const AxisProduct& summand : dim.summands) {
      summands.push_back(summand.empty() ? "1" : absl::StrJoin(summand, " "));
    }
    factors.push_back(absl::StrCat("(", absl::StrJoin(summands, " + "), ")"));
    factors.insert(factors.end(), dim.after.begin(), dim.after.end());
  }
  if (factors.empty()) return "1";
  if (factors.size() == 1) return factors[0];
  return absl::StrCat("(", absl::StrJoin(factors, " "), ")");
}

}  // namespace dcp
