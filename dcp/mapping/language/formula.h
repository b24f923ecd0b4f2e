// SPDX-License-Identifier: Apache-2.0
// Formula: integer arithmetic over names, as rule files of mappings write it:
// "num_attention_heads / group", "not tied", "round_up(v, vocab_multiple) - v".
// The meaning of the names does not matter here. Pure; any thread.
//
//   or, and, not; == != < <= > >=; + -; * / // %; -x; round_up(n, multiple)
//
// The operators that bind strongest come last, as in Python. / must divide
// without a remainder. Truth values are 0 and 1; every other number is true.
#ifndef DCP_MAPPING_LANGUAGE_FORMULA_H_
#define DCP_MAPPING_LANGUAGE_FORMULA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

class Formula {
 public:
  // The value for a name; NotFound if it has none.
  using Lookup =
      absl::FunctionRef<absl::StatusOr<int64_t>(absl::string_view name)>;

  // InvalidArgument, with the place in `text`, if it is not a formula or longer
  // than kMaxMappingTextBytes.
  static absl::StatusOr<Formula> Parse(absl::string_view text);

  // InvalidArgument for a division that leaves a remainder or is by zero, and
  // for results that do not fit 64 bits; errors of `lookup` as they are. `and`
  // and `or` evaluate no operand that they do not need.
  absl::StatusOr<int64_t> Evaluate(Lookup lookup) const;

  const std::string& text() const { return text_; }
  // The names in the text, in order; some may occur twice.
  std::vector<std::string> Names() const;

 private:
  enum class Op : uint8_t {
    kNumber,
    kName,
    kOr,
    kAnd,
    kNot,
    kEqual,
    kNotEqual,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kFloorDivide,
    kModulo,
    kNegate,
    kRoundUp,
  };
  // The operands are the indices of earlier nodes.
  struct Node {
    Op op = Op::kNumber;
    size_t left = 0;
    size_t right = 0;
    int64_t number = 0;
    std::string name = {};
  };
  class Parser;

  absl::StatusOr<int64_t> NodeValue(size_t node, Lookup lookup) const;
  absl::StatusOr<int64_t> Apply(Op op, int64_t left, int64_t right) const;

  std::string text_;
  std::vector<Node> nodes_;  // the last is the whole
};

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_FORMULA_H_
