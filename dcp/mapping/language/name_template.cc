// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/language/name_template.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/mapping/language/word_bytes.h"

namespace dcp {
namespace {

bool IsWord(absl::string_view text) {
  return !text.empty() && !IsDigit(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '_';
         });
}

// More digits than these do not occur, and might not fit 64 bits.
constexpr size_t kMaxIndexDigits = 18;

}  // namespace

absl::StatusOr<NameTemplate> NameTemplate::Parse(absl::string_view text) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the name \"", text.substr(0, kMaxMappingTextBytes), "\" ", why));
  };
  if (text.size() > kMaxMappingTextBytes) {
    return refuse(absl::StrCat("is longer than ", kMaxMappingTextBytes));
  }
  NameTemplate name;
  name.text_ = std::string(text);
  absl::string_view rest = text;
  bool has_text = false;
  while (true) {
    const size_t open = rest.find_first_of("{}");
    name.literals_.emplace_back(rest.substr(0, open));
    has_text = has_text || !name.literals_.back().empty();
    if (open == absl::string_view::npos) break;
    const size_t close = rest.find('}', open);
    if (rest[open] == '}' || close == absl::string_view::npos ||
        rest.find('{', open + 1) < close) {
      return refuse("has a brace without a counterpart");
    }
    const absl::Status added =
        name.AddSlot(rest.substr(open + 1, close - open - 1));
    if (!added.ok()) return refuse(added.message());
    rest.remove_prefix(close + 1);
  }
  if (!has_text) return refuse("has no text outside of braces");
  return name;
}

absl::Status NameTemplate::AddSlot(absl::string_view inside) {
  if (slots_.size() == kMaxMappingSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("has more than ", kMaxMappingSlots, " pairs of braces"));
  }
  Slot slot;
  std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(inside, absl::MaxSplits(':', 1));
  if (absl::StrContains(inside, ':')) {
    if (parts.second == "*") {
      slot.kind = Kind::kPart;
    } else if (parts.second == "**") {
      slot.kind = Kind::kAny;
    } else {
      slot.kind = Kind::kChoice;
      slot.choices = absl::StrSplit(parts.second, '|');
      for (const std::string& choice : slot.choices) {
        if (choice.empty() || absl::StrContains(choice, '*')) {
          return absl::InvalidArgumentError(absl::StrCat(
              "has {", inside, "}; write {x:a|b}, {x:*} or {x:**}"));
        }
      }
    }
  } else {
    parts = absl::StrSplit(inside, absl::MaxSplits('+', 1));
    if (absl::StrContains(inside, '+')) {
      DCP_ASSIGN_OR_RETURN(slot.formula, Formula::Parse(parts.second));
    }
  }
  const absl::string_view word = absl::StripAsciiWhitespace(parts.first);
  if (!IsWord(word)) {
    return absl::InvalidArgumentError(
        absl::StrCat("has {", inside, "}, but the variable is not a word"));
  }
  const Variable variable{.name = std::string(word),
                          .is_index = slot.kind == Kind::kIndex};
  const auto it =
      std::find_if(variables_.begin(), variables_.end(),
                   [&](const Variable& v) { return v.name == variable.name; });
  slot.variable = static_cast<size_t>(it - variables_.begin());
  if (it == variables_.end()) {
    variables_.push_back(variable);
  } else if (!(*it == variable)) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", word, " as an index and as a text"));
  }
  slots_.push_back(std::move(slot));
  return absl::OkStatus();
}

absl::Status NameTemplate::Resolve(Formula::Lookup lookup) {
  for (Slot& slot : slots_) {
    if (!slot.formula.has_value()) continue;
    DCP_ASSIGN_OR_RETURN(slot.offset, slot.formula->Evaluate(lookup));
    if (slot.offset < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the name \"", text_, "\" adds ", slot.offset,
                       " to an index, which is negative"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> NameTemplate::TextsFor(size_t variable) const {
  for (const Slot& slot : slots_) {
    if (slot.variable != variable) continue;
    if (slot.kind == Kind::kChoice) return slot.choices;
    if (slot.kind == Kind::kAny) return {"any.text"};
  }
  return {"text"};
}

std::vector<std::string> NameTemplate::Choices(size_t variable) const {
  for (const Slot& slot : slots_) {
    if (slot.variable == variable) return slot.choices;
  }
  return {};
}

// Tries the lengths for one slot after the other, longest first. It remembers
// which slots cannot match from which byte on, unless a variable occurs twice:
// then that depends on the variable's value.
class NameTemplate::Matcher {
 public:
  Matcher(const NameTemplate& pattern, absl::string_view name)
      : pattern_(pattern),
        name_(name),
        values_(pattern.variables_.size()),
        is_set_(pattern.variables_.size(), false),
        remembers_(pattern.variables_.size() == pattern.slots_.size()) {}

  std::optional<std::vector<NameValue>> Match() {
    if (!absl::StartsWith(name_, pattern_.literals_[0])) return std::nullopt;
    // Most names are refused here.
    if (!absl::EndsWith(name_, pattern_.literals_.back())) return std::nullopt;
    if (!MatchSlot(0, pattern_.literals_[0].size())) return std::nullopt;
    return std::move(values_);
  }

 private:
  // Whether slots from `slot` on match from byte `at` on.
  bool MatchSlot(size_t slot, size_t at) {
    if (slot == pattern_.slots_.size()) return at == name_.size();
    if (at >= name_.size()) return false;
    if (steps_left_ == 0) return false;
    const size_t state = slot * name_.size() + at;
    if (remembers_) {
      if (failed_.empty()) {
        failed_.resize(pattern_.slots_.size() * name_.size());
      }
      if (failed_[state]) return false;
    }
    const bool matched = TryLengths(slot, at);
    if (remembers_ && !matched) failed_[state] = true;
    return matched;
  }

  bool TryLengths(size_t slot, size_t at) {
    const Slot& rule = pattern_.slots_[slot];
    const absl::string_view rest = name_.substr(at);
    switch (rule.kind) {
      case Kind::kChoice:
        for (const std::string& choice : rule.choices) {
          if (absl::StartsWith(rest, choice) &&
              TryLength(slot, at, choice.size())) {
            return true;
          }
        }
        return false;
      case Kind::kIndex: {
        size_t most = 0;
        while (most < std::min(rest.size(), kMaxIndexDigits) &&
               IsDigit(rest[most])) {
          ++most;
        }
        if (most > 0 && rest[0] == '0') most = 1;
        return TryLengthsDown(slot, at, most);
      }
      case Kind::kPart:
        return TryLengthsDown(slot, at, std::min(rest.find('.'), rest.size()));
      case Kind::kAny:
        return TryLengthsDown(slot, at, rest.size());
    }
    return false;
  }

  bool TryLengthsDown(size_t slot, size_t at, size_t most) {
    for (size_t length = most; length > 0; --length) {
      if (TryLength(slot, at, length)) return true;
    }
    return false;
  }

  bool TryLength(size_t slot, size_t at, size_t length) {
    const std::string& literal = pattern_.literals_[slot + 1];
    const size_t end = at + length;
    if (!absl::StartsWith(name_.substr(end), literal)) return false;
    if (steps_left_ > 0) --steps_left_;
    const Slot& rule = pattern_.slots_[slot];
    NameValue value;
    const absl::string_view text = name_.substr(at, length);
    if (rule.kind == Kind::kIndex) {
      int64_t number = 0;
      if (!absl::SimpleAtoi(text, &number) || number < rule.offset) {
        return false;
      }
      value.number = static_cast<uint64_t>(number - rule.offset);
    } else {
      value.text = std::string(text);
    }
    if (is_set_[rule.variable]) {
      return values_[rule.variable] == value &&
             MatchSlot(slot + 1, end + literal.size());
    }
    values_[rule.variable] = std::move(value);
    is_set_[rule.variable] = true;
    const bool matched = MatchSlot(slot + 1, end + literal.size());
    is_set_[rule.variable] = matched;
    return matched;
  }

  const NameTemplate& pattern_;
  const absl::string_view name_;
  std::vector<NameValue> values_;
  std::vector<bool> is_set_;
  const bool remembers_;
  std::vector<bool> failed_;  // by slot and byte; empty until it is needed
  // Bounds the cost of a variable that occurs twice.
  size_t steps_left_ = kMaxMappingTextBytes * kMaxMappingSlots;
};

std::optional<std::vector<NameValue>> NameTemplate::Match(
    absl::string_view name) const {
  if (name.size() > kMaxMappingTextBytes) return std::nullopt;
  return Matcher(*this, name).Match();
}

std::string NameTemplate::Format(absl::Span<const NameValue> values) const {
  std::string name = literals_[0];
  for (size_t i = 0; i < slots_.size(); ++i) {
    const NameValue& value = values[slots_[i].variable];
    if (slots_[i].kind == Kind::kIndex) {
      absl::StrAppend(&name,
                      value.number + static_cast<uint64_t>(slots_[i].offset));
    } else {
      name += value.text;
    }
    name += literals_[i + 1];
  }
  return name;
}

}  // namespace dcp
