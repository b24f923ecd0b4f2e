// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/language/formula.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/mapping/language/word_bytes.h"

namespace dcp {
namespace {

// Rounds towards minus infinity, as Python does; nullopt if the result does not
// fit.
std::optional<int64_t> FloorDivide(int64_t left, int64_t right) {
  if (left == std::numeric_limits<int64_t>::min() && right == -1) {
    return std::nullopt;
  }
  const int64_t quotient = left / right;
  return quotient * right != left && (left < 0) != (right < 0) ? quotient - 1
                                                               : quotient;
}

std::optional<int64_t> RoundUp(int64_t number, int64_t multiple) {
  const std::optional<int64_t> below = FloorDivide(number, multiple);
  if (!below.has_value()) return std::nullopt;
  int64_t result = 0;
  // Never above `number` in size, because it is rounded down.
  const int64_t floor = *below * multiple;
  if (floor == number) return number;
  if (__builtin_add_overflow(floor, multiple, &result)) return std::nullopt;
  return result;
}

}  // namespace

// Recursive descent: one method for each level of precedence.
class Formula::Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text), rest_(text) {}

  absl::StatusOr<std::vector<Node>> Parse() {
    DCP_RETURN_IF_ERROR(Or().status());
    if (!Peek().empty()) return Unexpected("the end");
    if (nodes_.size() > kMaxFormulaNodes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the formula \"", text_, "\" has ", nodes_.size(),
          " operands and operators, more than ", kMaxFormulaNodes));
    }
    return std::move(nodes_);
  }

 private:
  struct Operator {
    absl::string_view word;
    Op op;
  };

  absl::Status Unexpected(absl::string_view expected) {
    const absl::string_view found = Peek();
    const size_t at = text_.size() - rest_.size();
    return absl::InvalidArgumentError(absl::StrCat(
        "the formula \"", text_, "\" has ",
        found.empty() ? "its end" : absl::StrCat("\"", found, "\""), " where ",
        expected, " is expected, after ", at, " characters"));
  }

  // The next word, number or sign; empty at the end.
  absl::string_view Peek() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    if (rest_.empty()) return rest_;
    size_t length = 0;
    if (IsWordByte(rest_[0])) {
      const bool is_number = IsDigit(rest_[0]);
      while (length < rest_.size() && (IsWordByte(rest_[length]) ||
                                       (!is_number && rest_[length] == '.'))) {
        ++length;
      }
      return rest_.substr(0, length);
    }
    for (const absl::string_view two : {"//", "==", "!=", "<=", ">="}) {
      if (absl::StartsWith(rest_, two)) return rest_.substr(0, 2);
    }
    return rest_.substr(0, 1);
  }

  bool Take(absl::string_view token) {
    if (Peek() != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  size_t Add(Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  std::optional<Op> TakeOperator(absl::Span<const Operator> operators) {
    for (const Operator& candidate : operators) {
      if (Take(candidate.word)) return candidate.op;
    }
    return std::nullopt;
  }

  using Level = absl::StatusOr<size_t> (Parser::*)();

  // Operators of one level, applied from left to right.
  absl::StatusOr<size_t> Chain(Level next,
                               absl::Span<const Operator> operators) {
    DCP_ASSIGN_OR_RETURN(size_t left, (this->*next)());
    while (const std::optional<Op> op = TakeOperator(operators)) {
      DCP_ASSIGN_OR_RETURN(const size_t right, (this->*next)());
      left = Add({.op = *op, .left = left, .right = right});
    }
    return left;
  }

  absl::StatusOr<size_t> Or() { return Chain(&Parser::And, {{"or", Op::kOr}}); }
  absl::StatusOr<size_t> And() {
    return Chain(&Parser::Not, {{"and", Op::kAnd}});
  }

  absl::StatusOr<size_t> Not() {
    if (!Take("not")) return Comparison();
    DCP_RETURN_IF_ERROR(Descend());
    DCP_ASSIGN_OR_RETURN(const size_t operand, Not());
    --depth_;
    return Add({.op = Op::kNot, .left = operand});
  }

  // One comparison at most: a < b < c means something else in every language.
  absl::StatusOr<size_t> Comparison() {
    DCP_ASSIGN_OR_RETURN(const size_t left, Sum());
    const std::optional<Op> op = TakeOperator({{"==", Op::kEqual},
                                               {"!=", Op::kNotEqual},
                                               {"<=", Op::kLessEqual},
                                               {">=", Op::kGreaterEqual},
                                               {"<", Op::kLess},
                                               {">", Op::kGreater}});
    if (!op.has_value()) return left;
    DCP_ASSIGN_OR_RETURN(const size_t right, Sum());
    return Add({.op = *op, .left = left, .right = right});
  }

  absl::StatusOr<size_t> Sum() {
    return Chain(&Parser::Product, {{"+", Op::kAdd}, {"-", Op::kSubtract}});
  }
  absl::StatusOr<size_t> Product() {
    return Chain(&Parser::Factor, {{"*", Op::kMultiply},
                                   {"//", Op::kFloorDivide},
                                   {"/", Op::kDivide},
                                   {"%", Op::kModulo}});
  }

  absl::StatusOr<size_t> Factor() {
    if (Take("-")) {
      DCP_RETURN_IF_ERROR(Descend());
      DCP_ASSIGN_OR_RETURN(const size_t operand, Factor());
      --depth_;
      return Add({.op = Op::kNegate, .left = operand});
    }
    if (Take("(")) {
      DCP_RETURN_IF_ERROR(Descend());
      DCP_ASSIGN_OR_RETURN(const size_t inner, Or());
      --depth_;
      if (!Take(")")) return Unexpected("\")\"");
      return inner;
    }
    const absl::string_view word = Peek();
    if (word.empty() || !IsWordByte(word[0])) return Unexpected("a value");
    if (word == "or" || word == "and" || word == "not") {
      return Unexpected("a value");
    }
    if (IsDigit(word[0])) {
      int64_t number = 0;
      if (!absl::SimpleAtoi(word, &number)) return Unexpected("an integer");
      rest_.remove_prefix(word.size());
      return Add({.op = Op::kNumber, .number = number});
    }
    rest_.remove_prefix(word.size());
    if (Take("(")) return Call(word);
    return Add({.op = Op::kName, .name = std::string(word)});
  }

  absl::StatusOr<size_t> Call(absl::string_view function) {
    if (function != "round_up") {
      return absl::InvalidArgumentError(
          absl::StrCat("the formula \"", text_, "\" calls ", function,
                       ", and the only function is round_up"));
    }
    DCP_RETURN_IF_ERROR(Descend());
    DCP_ASSIGN_OR_RETURN(const size_t number, Or());
    if (!Take(",")) return Unexpected("\",\"");
    DCP_ASSIGN_OR_RETURN(const size_t multiple, Or());
    if (!Take(")")) return Unexpected("\")\"");
    --depth_;
    return Add({.op = Op::kRoundUp, .left = number, .right = multiple});
  }

  absl::Status Descend() {
    if (++depth_ <= kMaxFormulaDepth) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the formula \"", text_,
                                                   "\" is nested deeper than ",
                                                   kMaxFormulaDepth));
  }

  absl::string_view text_;
  absl::string_view rest_;
  std::vector<Node> nodes_;
  size_t depth_ = 0;
};

absl::StatusOr<Formula> Formula::Parse(absl::string_view text) {
  if (text.size() > kMaxMappingTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a formula of ", text.size(), " bytes exceeds ", kMaxMappingTextBytes));
  }
  Formula formula;
  formula.text_ = std::string(absl::StripAsciiWhitespace(text));
  DCP_ASSIGN_OR_RETURN(formula.nodes_, Parser(formula.text_).Parse());
  return formula;
}

std::vector<std::string> Formula::Names() const {
  std::vector<std::string> names;
  for (const Node& node : nodes_) {
    if (node.op == Op::kName) names.push_back(node.name);
  }
  return names;
}

absl::StatusOr<int64_t> Formula::Evaluate(Lookup lookup) const {
  return NodeValue(nodes_.size() - 1, lookup);
}

absl::StatusOr<int64_t> Formula::NodeValue(size_t at, Lookup lookup) const {
  const Node& node = nodes_[at];
  if (node.op == Op::kNumber) return node.number;
  if (node.op == Op::kName) return lookup(node.name);
  DCP_ASSIGN_OR_RETURN(const int64_t left, NodeValue(node.left, lookup));
  if (node.op == Op::kNot) return left == 0 ? 1 : 0;
  if (node.op == Op::kNegate) return Apply(Op::kSubtract, 0, left);
  if (node.op == Op::kOr && left != 0) return 1;
  if (node.op == Op::kAnd && left == 0) return 0;
  DCP_ASSIGN_OR_RETURN(const int64_t right, NodeValue(node.right, lookup));
  return Apply(node.op, left, right);
}

absl::StatusOr<int64_t> Formula::Apply(Op op, int64_t left,
                                       int64_t right) const {
  const auto refuse = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the formula \"", text_, "\" with ", left, " and ", right, ": ", what));
  };
  const bool divides = op == Op::kDivide || op == Op::kFloorDivide ||
                       op == Op::kModulo || op == Op::kRoundUp;
  if (divides && right == 0) return refuse("a division by zero");
  int64_t result = 0;
  bool overflows = false;
  const auto set = [&](std::optional<int64_t> value) {
    overflows = !value.has_value();
    result = value.value_or(0);
  };
  switch (op) {
    case Op::kOr:
    case Op::kAnd:
      return right != 0 ? 1 : 0;
    case Op::kEqual:
      return left == right ? 1 : 0;
    case Op::kNotEqual:
      return left != right ? 1 : 0;
    case Op::kLess:
      return left < right ? 1 : 0;
    case Op::kLessEqual:
      return left <= right ? 1 : 0;
    case Op::kGreater:
      return left > right ? 1 : 0;
    case Op::kGreaterEqual:
      return left >= right ? 1 : 0;
    case Op::kAdd:
      overflows = __builtin_add_overflow(left, right, &result);
      break;
    case Op::kSubtract:
      overflows = __builtin_sub_overflow(left, right, &result);
      break;
    case Op::kMultiply:
      overflows = __builtin_mul_overflow(left, right, &result);
      break;
    case Op::kDivide:
    case Op::kFloorDivide:
      set(FloorDivide(left, right));
      if (op == Op::kDivide && !overflows && result * right != left) {
        return refuse("the first is not a multiple of the second");
      }
      break;
    case Op::kModulo:
      // -1 divides everything; the quotient might not fit.
      result = right == -1 ? 0 : left - *FloorDivide(left, right) * right;
      break;
    case Op::kRoundUp:
      if (right < 0) return refuse("round_up needs a positive multiple");
      set(RoundUp(left, right));
      break;
    case Op::kNumber:
    case Op::kName:
    case Op::kNot:
    case Op::kNegate:
      break;
  }
  if (overflows) return refuse("the result exceeds 64 bits");
  return result;
}

}  // namespace dcp
