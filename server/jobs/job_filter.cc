// SPDX-License-Identifier: Apache-2.0
// Parses a filter for jobs, and matches jobs with it. The grammar, in which
// each rule is a function of the parser:
//
//   expression  factor { AND factor }
//   factor      term { OR term }
//   term        [ NOT | - ] ( "(" expression ")" | comparison )
//   comparison  field comparator value
//
// As AIP-160 specifies, OR binds more tightly than AND.
#include "server/jobs/job_filter.h"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "proto/error_detail.h"
#include "proto/utf8.h"

namespace dcp::server {
namespace {

// An error shows at most this much of the text.
constexpr size_t kMaxShownBytes = 100;

struct Token {
  enum class Kind : uint8_t { kEnd, kWord, kString, kSymbol };
  Kind kind = Kind::kEnd;
  std::string text;  // without quotes if it is a string
  size_t column = 1;

  bool IsSymbol(absl::string_view symbol) const {
    return kind == Kind::kSymbol && text == symbol;
  }
  bool IsWord(absl::string_view word) const {
    return kind == Kind::kWord && text == word;
  }
};

absl::Status Refuse(size_t column, absl::string_view problem) {
  return BlameField(
      WithReason(absl::InvalidArgumentError(
                     absl::StrCat("filter, column ", column, ": ", problem)),
                 ErrorReason::INVALID_FILTER,
                 {{"field", "filter"}, {"column", absl::StrCat(column)}}),
      "filter");
}

// Describes the token for an error: "'x'", or the end of the text.
std::string Shown(const Token& token) {
  if (token.kind == Token::Kind::kEnd) return "the filter ends";
  return absl::StrCat("'", ToUtf8(token.text.substr(0, kMaxShownBytes)), "'");
}

class Lexer {
 public:
  explicit Lexer(absl::string_view text) : text_(text) {}

  absl::StatusOr<Token> Next() {
    while (at_ < text_.size() &&
           absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) {
      ++at_;
    }
    Token token;
    token.column = at_ + 1;
    if (at_ == text_.size()) return token;
    const char c = text_[at_];
    if (c == '"' || c == '\'') return String(std::move(token));
    token.kind = Token::Kind::kSymbol;
    for (const absl::string_view symbol :
         {"!=", "<=", ">=", "=", "<", ">", ":", "(", ")"}) {
      if (!absl::StartsWith(text_.substr(at_), symbol)) continue;
      token.text = std::string(symbol);
      at_ += symbol.size();
      return token;
    }
    if (!IsWordCharacter(c)) {
      return Refuse(token.column,
                    absl::StrCat("'", ToUtf8(text_.substr(at_, 1)),
                                 "' is not allowed outside quotes"));
    }
    token.kind = Token::Kind::kWord;
    // A minus at the beginning is a separate token; inside a word it is a
    // letter.
    while (at_ < text_.size() && IsWordCharacter(text_[at_])) {
      token.text += text_[at_++];
    }
    return token;
  }

 private:
  static bool IsWordCharacter(char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains("_-.*/+", c);
  }

  absl::StatusOr<Token> String(Token token) {
    token.kind = Token::Kind::kString;
    const char quote = text_[at_++];
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      token.text += text_[at_++];
    }
    if (at_ == text_.size()) {
      return Refuse(token.column, "the quotes are not closed");
    }
    ++at_;
    return token;
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

class JobFilterParser {
 public:
  explicit JobFilterParser(absl::string_view text) : lexer_(text) {}

  absl::StatusOr<JobFilter> Parse() {
    DCP_RETURN_IF_ERROR(Advance());
    if (token_.kind == Token::Kind::kEnd) return std::move(filter_);
    DCP_RETURN_IF_ERROR(Expression());
    if (token_.kind == Token::Kind::kEnd) return std::move(filter_);
    return Refuse(
        token_.column,
        absl::StrCat("expected AND, OR or the end, found ", Shown(token_)));
  }

 private:
  using Comparator = JobFilter::Comparator;
  using Comparison = JobFilter::Comparison;
  using Field = JobFilter::Field;
  using Step = JobFilter::Step;

  enum class Type : uint8_t { kState, kKind, kBool, kText, kTime, kNumber };
  struct FieldName {
    absl::string_view name;
    Field field;
    Type type;
  };
  static constexpr std::array<FieldName, 10> kFields = {{
      {"state", Field::kState, Type::kState},
      {"kind", Field::kKind, Type::kKind},
      {"done", Field::kDone, Type::kBool},
      {"source", Field::kSource, Type::kText},
      {"destination", Field::kDestination, Type::kText},
      {"create_time", Field::kCreateTime, Type::kTime},
      {"start_time", Field::kStartTime, Type::kTime},
      {"end_time", Field::kEndTime, Type::kTime},
      {"num_restarts", Field::kNumRestarts, Type::kNumber},
      {"memory_bytes", Field::kMemoryBytes, Type::kNumber},
  }};

  absl::Status Advance() {
    DCP_ASSIGN_OR_RETURN(token_, lexer_.Next());
    return absl::OkStatus();
  }

  void Add(Step::Kind kind, size_t comparison = 0) {
    filter_.steps_.push_back({kind, comparison});
  }

  absl::Status Expression() {
    DCP_RETURN_IF_ERROR(Factor());
    while (token_.IsWord("AND")) {
      DCP_RETURN_IF_ERROR(Advance());
      DCP_RETURN_IF_ERROR(Factor());
      Add(Step::Kind::kAnd);
    }
    return absl::OkStatus();
  }

  absl::Status Factor() {
    DCP_RETURN_IF_ERROR(Term());
    while (token_.IsWord("OR")) {
      DCP_RETURN_IF_ERROR(Advance());
      DCP_RETURN_IF_ERROR(Term());
      Add(Step::Kind::kOr);
    }
    return absl::OkStatus();
  }

  absl::Status Term() {
    bool negated = false;
    if (token_.IsWord("NOT") || token_.IsWord("-")) {
      negated = true;
      DCP_RETURN_IF_ERROR(Advance());
    } else if (token_.kind == Token::Kind::kWord && token_.text[0] == '-') {
      negated = true;
      token_.text.erase(0, 1);
      ++token_.column;
    }
    if (token_.IsSymbol("(")) {
      DCP_RETURN_IF_ERROR(Parenthesis());
    } else {
      DCP_RETURN_IF_ERROR(Restriction());
    }
    if (negated) Add(Step::Kind::kNot);
    return absl::OkStatus();
  }

  absl::Status Parenthesis() {
    const size_t column = token_.column;
    if (depth_ == kMaxFilterDepth) {
      return Refuse(column,
                    absl::StrCat("there are more than ", kMaxFilterDepth,
                                 " nested parentheses"));
    }
    ++depth_;
    DCP_RETURN_IF_ERROR(Advance());
    DCP_RETURN_IF_ERROR(Expression());
    if (!token_.IsSymbol(")")) {
      return Refuse(token_.column,
                    absl::StrCat(Shown(token_), " where ) of column ", column,
                                 " is missing"));
    }
    --depth_;
    return Advance();
  }

  absl::Status Restriction() {
    DCP_ASSIGN_OR_RETURN(const FieldName* field, TakeField());
    Comparison comparison;
    comparison.field = field->field;
    DCP_ASSIGN_OR_RETURN(comparison.comparator, TakeComparator());
    if (token_.kind != Token::Kind::kWord &&
        token_.kind != Token::Kind::kString) {
      return Refuse(token_.column,
                    absl::StrCat(Shown(token_), " where a value is missing"));
    }
    if (comparison.comparator == Comparator::kHas && token_.IsWord("*")) {
      comparison.comparator = Comparator::kPresent;
    } else {
      DCP_RETURN_IF_ERROR(CheckComparator(*field, comparison.comparator));
      DCP_RETURN_IF_ERROR(SetValue(*field, comparison));
    }
    if (filter_.comparisons_.size() == kMaxFilterComparisons) {
      return Refuse(token_.column,
                    absl::StrCat("there are more than ", kMaxFilterComparisons,
                                 " comparisons"));
    }
    Add(Step::Kind::kCompare, filter_.comparisons_.size());
    filter_.comparisons_.push_back(std::move(comparison));
    return Advance();
  }

  absl::StatusOr<const FieldName*> TakeField() {
    const Token name = token_;
    absl::string_view text = name.text;
    const bool of_metadata = absl::ConsumePrefix(&text, "metadata.");
    const auto* const found = std::find_if(
        kFields.begin(), kFields.end(),
        [&](const FieldName& field) { return field.name == text; });
    if (name.kind != Token::Kind::kWord || found == kFields.end() ||
        (of_metadata && found->field == Field::kDone)) {
      std::string allowed;
      for (const FieldName& field : kFields) {
        absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", field.name);
      }
      return Refuse(
          name.column,
          absl::StrCat(Shown(name), " is not a field; there are ", allowed));
    }
    comparator_column_ = name.column;
    DCP_RETURN_IF_ERROR(Advance());
    return found;
  }

  absl::StatusOr<Comparator> TakeComparator() {
    static constexpr std::array<std::pair<absl::string_view, Comparator>, 7>
        kComparators = {{{"=", Comparator::kEqual},
                         {"!=", Comparator::kNotEqual},
                         {"<", Comparator::kLess},
                         {"<=", Comparator::kLessOrEqual},
                         {">", Comparator::kGreater},
                         {">=", Comparator::kGreaterOrEqual},
                         {":", Comparator::kHas}}};
    comparator_column_ = token_.column;
    for (const auto& [symbol, comparator] : kComparators) {
      if (!token_.IsSymbol(symbol)) continue;
      DCP_RETURN_IF_ERROR(Advance());
      return comparator;
    }
    return Refuse(
        token_.column,
        absl::StrCat(Shown(token_), " is not one of = != < <= > >= :"));
  }

  // Checks that the field has this comparator. Every field has ":*".
  absl::Status CheckComparator(const FieldName& field,
                               Comparator comparator) const {
    const bool is_equality =
        comparator == Comparator::kEqual || comparator == Comparator::kNotEqual;
    switch (field.type) {
      case Type::kState:
      case Type::kKind:
      case Type::kBool:
        if (is_equality) return absl::OkStatus();
        return Refuse(comparator_column_,
                      absl::StrCat(field.name, " supports only = and !="));
      case Type::kText:
        if (is_equality || comparator == Comparator::kHas) {
          return absl::OkStatus();
        }
        return Refuse(comparator_column_,
                      absl::StrCat(field.name, " supports only =, != and :"));
      case Type::kTime:
      case Type::kNumber:
        break;
    }
    if (comparator != Comparator::kHas) return absl::OkStatus();
    return Refuse(comparator_column_,
                  absl::StrCat(field.name, " supports : only with *"));
  }

  absl::Status SetValue(const FieldName& field, Comparison& comparison) {
    const std::string& text = token_.text;
    std::string allowed;
    switch (field.type) {
      case Type::kState: {
        JobState state;
        if (JobMetadata::State_Parse(text, &state)) {
          comparison.number = static_cast<uint64_t>(state);
          return absl::OkStatus();
        }
        allowed = "a state such as RUNNING";
        break;
      }
      case Type::kKind: {
        JobKind kind;
        if (JobMetadata::Kind_Parse(text, &kind)) {
          comparison.number = static_cast<uint64_t>(kind);
          return absl::OkStatus();
        }
        allowed = "a kind such as RESHARD";
        break;
      }
      case Type::kBool:
        comparison.number = text == "true" ? 1 : 0;
        if (text == "true" || text == "false") return absl::OkStatus();
        allowed = "true or false";
        break;
      case Type::kText:
        SetText(comparison);
        return absl::OkStatus();
      case Type::kTime:
        if (absl::ParseTime(absl::RFC3339_full, text, &comparison.time,
                            nullptr)) {
          return absl::OkStatus();
        }
        allowed = "a time such as \"2026-01-31T12:00:00Z\"";
        break;
      case Type::kNumber:
        if (absl::SimpleAtoi(text, &comparison.number)) {
          return absl::OkStatus();
        }
        allowed = "a number of 0 or more";
        break;
    }
    return Refuse(token_.column,
                  absl::StrCat(Shown(token_), " is not ", allowed));
  }

  // A * at either end matches any text, except with ":", which finds any part.
  void SetText(Comparison& comparison) const {
    absl::string_view text = token_.text;
    if (comparison.comparator == Comparator::kHas) {
      comparison.open_begin = comparison.open_end = true;
    } else {
      comparison.open_begin = absl::ConsumePrefix(&text, "*");
      comparison.open_end = absl::ConsumeSuffix(&text, "*");
    }
    comparison.text = std::string(text);
  }

  Lexer lexer_;
  Token token_;
  size_t comparator_column_ = 1;
  size_t depth_ = 0;
  JobFilter filter_;
};

absl::StatusOr<JobFilter> JobFilter::Parse(absl::string_view text) {
  if (text.size() > kMaxFilterBytes) {
    return Refuse(
        kMaxFilterBytes + 1,
        absl::StrCat("the filter has ", text.size(), " bytes: at most ",
                     kMaxFilterBytes, " are allowed"));
  }
  DCP_ASSIGN_OR_RETURN(JobFilter filter, JobFilterParser(text).Parse());
  filter.text_ = std::string(text);
  return filter;
}

bool JobFilter::Matches(const Job& job) const {
  if (steps_.empty()) return true;
  std::array<bool, kMaxFilterComparisons> stack;
  size_t top = 0;  // index behind the top element
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::Kind::kCompare:
        DCP_CHECK(top < stack.size(), top);
        stack[top++] = Compare(comparisons_[step.comparison], job);
        break;
      case Step::Kind::kNot:
        stack[top - 1] = !stack[top - 1];
        break;
      case Step::Kind::kAnd:
        --top;
        stack[top - 1] = stack[top - 1] && stack[top];
        break;
      case Step::Kind::kOr:
        --top;
        stack[top - 1] = stack[top - 1] || stack[top];
        break;
    }
  }
  DCP_CHECK(top == 1, top);
  return stack[0];
}

bool JobFilter::Compare(const Comparison& comparison, const Job& job) {
  // If the value is absent, every comparison is false.
  const auto compare = [&](const auto& value, const auto& wanted,
                           bool is_present) {
    switch (comparison.comparator) {
      case Comparator::kEqual:
        return is_present && value == wanted;
      case Comparator::kNotEqual:
        return is_present && value != wanted;
      case Comparator::kLess:
        return is_present && value < wanted;
      case Comparator::kLessOrEqual:
        return is_present && value <= wanted;
      case Comparator::kGreater:
        return is_present && value > wanted;
      case Comparator::kGreaterOrEqual:
        return is_present && value >= wanted;
      case Comparator::kHas:
      case Comparator::kPresent:
        break;
    }
    return is_present;
  };
  const auto number = [&](uint64_t value) {
    return compare(value, comparison.number, true);
  };
  const auto time = [&](absl::Time value, bool is_present = true) {
    return compare(value, comparison.time, is_present);
  };
  switch (comparison.field) {
    case Field::kState:
      return number(static_cast<uint64_t>(job.state));
    case Field::kKind:
      return number(static_cast<uint64_t>(job.request.kind));
    case Field::kDone:
      return number(HasEnded(job.state) ? 1 : 0);
    case Field::kSource:
      return CompareText(comparison, job.request.source);
    case Field::kDestination:
      return CompareText(comparison, job.request.destination);
    case Field::kCreateTime:
      return time(job.create_time);
    case Field::kStartTime:
      return time(job.start_time, job.start_time != absl::InfinitePast());
    case Field::kEndTime:
      return time(job.end_time, HasEnded(job.state));
    case Field::kNumRestarts:
      return number(job.num_restarts);
    case Field::kMemoryBytes:
      return number(job.request.memory_bytes);
  }
  return false;
}

bool JobFilter::CompareText(const Comparison& comparison,
                            absl::string_view text) {
  if (comparison.comparator == Comparator::kPresent) return !text.empty();
  const absl::string_view wanted = comparison.text;
  const bool matches = comparison.open_begin && comparison.open_end
                           ? absl::StrContains(text, wanted)
                       : comparison.open_begin ? absl::EndsWith(text, wanted)
                       : comparison.open_end   ? absl::StartsWith(text, wanted)
                                               : text == wanted;
  return matches != (comparison.comparator == Comparator::kNotEqual);
}

}  // namespace dcp::server
