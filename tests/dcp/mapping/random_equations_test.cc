// SPDX-License-Identifier: Apache-2.0
// Random equations: axes in random order and groups, sums, indices in names or
// shapes. The array interpreter's result is compared with the axes' definition,
// element by element, and must come back.

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/trial/mapping_trial.h"
#include "dcp/mapping/trial/round_trip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/apply_pieces.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ApplyPieces;
using ::dcp::testing::ArrayTensor;
using ::dcp::testing::WithoutBytes;

using Index = std::map<std::string, size_t>;  // by axis

// One side's axes, from the slowest: `index` is in the name, the others are
// grouped into dimensions, and one dimension has an axis that is different in
// each summand.
struct Side {
  std::string index;  // empty: none
  std::vector<std::vector<std::string>> dims;
  // Either every summand is a tensor, or they are one sum in place of "s".
  bool is_fused = false;
};

class RandomEquation {
 public:
  explicit RandomEquation(uint32_t seed) : random_(seed) {
    const size_t num_axes = 1 + random_() % 4;
    for (size_t i = 0; i < num_axes; ++i) {
      sizes_[absl::StrCat("x", i)] = 1 + random_() % 3;
    }
    const size_t num_summands = 1 + random_() % 3;
    for (size_t k = 0; k < num_summands; ++k) {
      summands_.push_back(1 + random_() % 3);
    }
    for (Side* side : {&a_, &b_}) MakeSide(*side);
    for (const auto& [axis, size] : sizes_) params_[axis] = size;
    for (size_t k = 0; k < summands_.size(); ++k) {
      params_[SummandAxis(k)] = summands_[k];
    }
  }

  std::string Text() const {
    std::string text =
        "tessera-mapping: 1\nname: r\nsides: {a: , b: }\nparams:";
    for (const auto& [axis, size] : params_) {
      absl::StrAppend(&text, "\n  ", axis, ": ", size);
    }
    return absl::StrCat(text, "\nrules:\n- a:\n", Terms("a", a_), "  b:\n",
                        Terms("b", b_));
  }

  // The tensors on a side, each element with a different number.
  std::vector<ArrayTensor> Tensors(bool is_a) const {
    const Side& side = is_a ? a_ : b_;
    std::vector<ArrayTensor> tensors;
    std::map<std::string, std::map<std::vector<size_t>, uint8_t>> elements;
    uint8_t number = 0;
    for (size_t k = 0; k < summands_.size(); ++k) {
      ForEachIndex(k, [&](const Index& at) {
        const auto [name, place] = ElementPlace(is_a ? "a" : "b", side, k, at);
        elements[name][place] = number++;
      });
    }
    for (const auto& [name, values] : elements) {
      ArrayTensor& tensor = tensors.emplace_back();
      tensor.tensor.name = name;
      tensor.tensor.dtype = DType::kUInt8;
      // The map's order is row-major; the last place is the largest.
      for (const size_t last : values.rbegin()->first) {
        tensor.tensor.shape.push_back(static_cast<int64_t>(last) + 1);
      }
      for (const auto& [place, value] : values) {
        tensor.bytes.push_back(static_cast<char>(value));
      }
    }
    return tensors;
  }

 private:
  static std::string SummandAxis(size_t k) { return absl::StrCat("s", k); }

  // "s" stands for the summand's axis.
  void MakeSide(Side& side) {
    std::vector<std::string> axes = {"s"};
    for (const auto& [axis, size] : sizes_) axes.push_back(axis);
    std::shuffle(axes.begin(), axes.end(), random_);
    side.is_fused = random_() % 2 == 0;
    if (random_() % 2 == 0 && axes.back() != "s") {
      side.index = axes.back();
      axes.pop_back();
    }
    while (!axes.empty()) {
      const size_t count = std::min<size_t>(1 + random_() % 3, axes.size());
      side.dims.emplace_back(axes.begin(),
                             axes.begin() + static_cast<ptrdiff_t>(count));
      axes.erase(axes.begin(), axes.begin() + static_cast<ptrdiff_t>(count));
    }
  }

  std::string Name(absl::string_view prefix, const Side& side, size_t k) const {
    return absl::StrCat(prefix, side.is_fused ? 0 : k,
                        side.index.empty() ? "" : ".{", side.index,
                        side.index.empty() ? "" : "}");
  }

  std::string Terms(absl::string_view prefix, const Side& side) const {
    std::string text;
    for (size_t k = 0; k < (side.is_fused ? 1 : summands_.size()); ++k) {
      absl::StrAppend(&text, "  - \"", Name(prefix, side, k), "\":");
      for (const std::vector<std::string>& dim : side.dims) {
        text += " (";
        for (const std::string& axis : dim) {
          absl::StrAppend(&text, " ", axis != "s" ? axis : SumText(side, k));
        }
        text += " )";
      }
      text += "\n";
    }
    return text;
  }

  std::string SumText(const Side& side, size_t k) const {
    if (!side.is_fused || summands_.size() == 1) return SummandAxis(k);
    std::string text = "(";
    for (size_t i = 0; i < summands_.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : " + ", SummandAxis(i));
    }
    return text + ")";
  }

  template <typename Visit>
  void ForEachIndex(size_t k, const Visit& visit) const {
    std::vector<std::pair<std::string, size_t>> axes(sizes_.begin(),
                                                     sizes_.end());
    axes.emplace_back("s", summands_[k]);
    size_t count = 1;
    for (const auto& [axis, size] : axes) count *= size;
    for (size_t n = 0; n < count; ++n) {
      Index at;
      size_t rest = n;
      for (const auto& [axis, size] : axes) {
        at[axis] = rest % size;
        rest /= size;
      }
      visit(at);
    }
  }

  // The tensor and the element for an index in summand `k`.
  std::pair<std::string, std::vector<size_t>> ElementPlace(
      absl::string_view prefix, const Side& side, size_t k,
      const Index& at) const {
    std::string name = absl::StrCat(prefix, side.is_fused ? 0 : k);
    if (!side.index.empty()) absl::StrAppend(&name, ".", at.at(side.index));
    std::vector<size_t> place;
    size_t before = 0;  // in the sum
    size_t all = 0;
    for (size_t i = 0; i < summands_.size(); ++i) {
      if (i < k) before += summands_[i];
      all += summands_[i];
    }
    for (const std::vector<std::string>& dim : side.dims) {
      size_t number = 0;
      for (const std::string& axis : dim) {
        const bool is_sum = axis == "s";
        const size_t size = !is_sum         ? sizes_.at(axis)
                            : side.is_fused ? all
                                            : summands_[k];
        number = number * size + at.at(axis) +
                 (is_sum && side.is_fused ? before : 0);
      }
      place.push_back(number);
    }
    return {name, place};
  }

  std::mt19937 random_;
  std::map<std::string, size_t> sizes_;  // all summands' axes
  std::vector<size_t> summands_;         // the sizes of the summands' own axes
  std::map<std::string, size_t> params_;
  Side a_;
  Side b_;
};

void ExpectEqual(const std::vector<ArrayTensor>& made,
                 const std::vector<ArrayTensor>& expected) {
  ASSERT_EQ(made.size(), expected.size());
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ(made[i].tensor, expected[i].tensor);
    EXPECT_EQ(made[i].bytes, expected[i].bytes) << made[i].tensor.name;
  }
}

TEST(RandomEquations, MoveEveryElementToItsPlaceAndBack) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const RandomEquation equation(seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", equation.Text()));
    ASSERT_OK_AND_ASSIGN(const Mapping mapping,
                         ParseMapping(equation.Text(), "m.yaml"));
    for (const bool from_a : {true, false}) {
      const std::vector<ArrayTensor> sources = equation.Tensors(from_a);
      const MapOptions options = {.from = from_a ? "a" : "b",
                                  .to = from_a ? "b" : "a"};
      ASSERT_OK_AND_ASSIGN(const MappedTensors mapped,
                           mapping.Map(WithoutBytes(sources), options));
      ASSERT_OK_AND_ASSIGN(const std::vector<ArrayTensor> made,
                           ApplyPieces(mapped, sources));
      ExpectEqual(made, equation.Tensors(!from_a));
      ASSERT_OK(CheckRoundTrip(mapping, WithoutBytes(sources), options));
      ASSERT_OK(TryMapping(mapping, WithoutBytes(sources), options, seed));
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace dcp
