// SPDX-License-Identifier: Apache-2.0
// NameTemplate: a name with variables, as the rules of a mapping write it. It
// is matched with whole names, and makes a name of values. Pure; any thread.
//
//   {i}               an index: digits without leading zeros
//   {m + layers}      an index that is larger by a formula in the name
//   {w:weight|bias}   one of these texts
//   {x:*}             any text without a dot
//   {x:**}            any text
//
// A variable that occurs twice has the same value at both places. Where a name
// can be divided in several ways, earlier variables take as much as they can.
#ifndef DCP_MAPPING_LANGUAGE_NAME_TEMPLATE_H_
#define DCP_MAPPING_LANGUAGE_NAME_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/mapping/language/formula.h"

namespace dcp {

// A variable's value: a number for an index, else a text.
struct NameValue {
  uint64_t number = 0;
  std::string text;

  friend auto operator<=>(const NameValue&, const NameValue&) = default;
  friend bool operator==(const NameValue&, const NameValue&) = default;
};

class NameTemplate {
 public:
  struct Variable {
    std::string name;
    bool is_index = true;

    friend bool operator==(const Variable&, const Variable&) = default;
  };

  // InvalidArgument for unbalanced braces, a variable that is not a word, a
  // name that has only variables, one that is longer than kMaxMappingTextBytes,
  // and more than kMaxMappingSlots variables.
  static absl::StatusOr<NameTemplate> Parse(absl::string_view text);

  // Evaluates the formulas in {i + formula}, which Match and Format need.
  absl::Status Resolve(Formula::Lookup lookup);

  // The values of variables(), in their order, if all of `name` has this form.
  // A name longer than kMaxMappingTextBytes never matches, nor does one that
  // can be divided in more than 65,536 ways.
  std::optional<std::vector<NameValue>> Match(absl::string_view name) const;

  // The name for these values of variables().
  std::string Format(absl::Span<const NameValue> values) const;

  const std::string& text() const { return text_; }
  // In the order of their first places, each once.
  const std::vector<Variable>& variables() const { return variables_; }
  // The texts that the variable with this number may have: all texts of a
  // choice, or a made-up one. For a variable that is not an index.
  std::vector<std::string> TextsFor(size_t variable) const;
  // The texts that the variable with this number may have if it is a choice;
  // else empty.
  std::vector<std::string> Choices(size_t variable) const;
  // The beginning of every name with this form.
  absl::string_view prefix() const { return literals_[0]; }

 private:
  enum class Kind : uint8_t { kIndex, kChoice, kPart, kAny };
  struct Slot {
    Kind kind = Kind::kIndex;
    size_t variable = 0;
    std::vector<std::string> choices;
    std::optional<Formula> formula;
    int64_t offset = 0;
  };
  class Matcher;

  absl::Status AddSlot(absl::string_view inside);

  std::string text_;
  std::vector<std::string> literals_;  // around the slots: one more than these
  std::vector<Slot> slots_;
  std::vector<Variable> variables_;
};

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_NAME_TEMPLATE_H_
