// SPDX-License-Identifier: Apache-2.0

#include "config/document/section.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "config/document/alternatives.h"
#include "config/document/training_subject.h"
#include "dcp/base/nearest_word.h"

namespace fsdp::config {
namespace {

using Kind = Node::Kind;

// A map with more of them is not a config; the others are only counted.
constexpr size_t kMaxUnknownKeys = 20;
constexpr size_t kMaxShownBytes = 60;
constexpr size_t kMaxShownKeys = 6;

// A value as a message shows it: 3, 'FULL_SHRAD', a list.
std::string ValueText(const Node& node) {
  if (node.kind == Kind::kList) return "a list";
  if (node.kind == Kind::kMap) return "a map";
  if (node.kind == Kind::kNull) return "null";
  std::string text = absl::Utf8SafeCHexEscape(node.text);
  if (text.size() > kMaxShownBytes) {
    size_t end = kMaxShownBytes;
    while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text = absl::StrCat(text.substr(0, end), "...");
  }
  return node.kind == Kind::kString ? absl::StrCat("'", text, "'") : text;
}

// "${variables.seed}", as the whole value or within it.
bool IsReference(const Node& node) {
  return node.is_scalar() && absl::StrContains(node.text, "${");
}

std::string RangeText(IntegerRange range) {
  if (range.most != std::numeric_limits<int64_t>::max()) {
    return absl::StrCat("a whole number from ", range.least, " to ",
                        range.most);
  }
  return absl::StrCat("a whole number of at least ", range.least);
}

std::string RangeText(RealRange range) {
  if (range.most != std::numeric_limits<double>::max()) {
    return absl::StrCat("a number from ", range.least, " to ", range.most);
  }
  return absl::StrCat("a number of at least ", range.least);
}

// The text for an unexpected value, or for a reference instead of one.
std::string NotExpected(const Node& node, absl::string_view expected) {
  if (IsReference(node)) {
    return absl::StrCat(
        "is ", ValueText(node),
        ", a reference that nothing in this file resolves; write the value, ",
        expected);
  }
  return absl::StrCat("is ", ValueText(node), ", not ", expected);
}

// ", not A or B; did you mean A?".
std::string DidYouMean(absl::string_view word,
                       const std::vector<absl::string_view>& words) {
  std::vector<std::string> lower;
  lower.reserve(words.size());
  for (const absl::string_view known : words) {
    lower.push_back(absl::AsciiStrToLower(known));
  }
  const std::vector<absl::string_view> known(lower.begin(), lower.end());
  const absl::string_view nearest =
      dcp::NearestWord(absl::AsciiStrToLower(word), known);
  const auto found = std::find(known.begin(), known.end(), nearest);
  if (nearest.empty() || found == known.end()) return "";
  return absl::StrCat("; did you mean ",
                      words[static_cast<size_t>(found - known.begin())], "?");
}

bool IsEmptyValue(const Node& node) {
  switch (node.kind) {
    case Kind::kNull:
      return true;
    case Kind::kList:
      return node.items.empty();
    case Kind::kMap:
      return node.entries.empty();
    default:
      return node.text.empty();
  }
}

// Whether a value switches nothing on: it is empty, off, or 0; one rank shards
// nothing either.
bool AsksForNothing(const Node& node, absl::string_view subject) {
  if (IsEmptyValue(node)) return true;
  if (!node.is_scalar()) return false;
  const std::optional<double> number = AsReal(node);
  if (!number.has_value()) return AsBool(node) == false;
  return *number == 0 || (*number == 1 && subject == "sharding");
}

// Whether a value means the same as `harmless`.
bool SaysSame(const Node& node, absl::string_view harmless) {
  if (!node.is_scalar()) return false;
  if (absl::EqualsIgnoreCase(node.text, harmless)) return true;
  Node other;
  other.kind = Kind::kString;
  other.text = std::string(harmless);
  const std::optional<double> number = AsReal(other);
  if (number.has_value()) return AsReal(node) == number;
  const std::optional<bool> truth = AsBool(other);
  return truth.has_value() && AsBool(node) == truth;
}

// Whether the words differ only in one letter more, fewer or different, in two
// swapped letters, or in case and dashes. Short words are not compared, because
// they are too similar.
bool IsSlip(absl::string_view word, absl::string_view known) {
  constexpr size_t kLeastBytes = 5;
  if (std::min(word.size(), known.size()) < kLeastBytes) return false;
  const auto same = [](char a, char b) {
    const auto plain = [](char c) {
      return c == '-' ? '_'
                      : absl::ascii_tolower(static_cast<unsigned char>(c));
    };
    return plain(a) == plain(b);
  };
  while (!word.empty() && !known.empty() && same(word[0], known[0])) {
    word.remove_prefix(1);
    known.remove_prefix(1);
  }
  while (!word.empty() && !known.empty() && same(word.back(), known.back())) {
    word.remove_suffix(1);
    known.remove_suffix(1);
  }
  if (word.size() <= 1 && known.size() <= 1) return true;
  return word.size() == 2 && known.size() == 2 && same(word[0], known[1]) &&
         same(word[1], known[0]);
}

}  // namespace

Section::Section(const Node& map, Findings& findings)
    : map_(&map), findings_(&findings) {
  if (map.kind != Kind::kMap && map.kind != Kind::kNull) {
    findings.Problem(
        map.place, absl::StrCat("is ", ValueText(map), ", not a map of keys"));
  }
}

const Node* Section::Find(absl::string_view key) {
  known_.emplace_back(key);
  const Node* node = map_->Find(key);
  return node == nullptr || node->kind == Kind::kNull ? nullptr : node;
}

const Node* Section::Find(const std::vector<absl::string_view>& names) {
  const Node* first = nullptr;
  absl::string_view first_name;
  for (absl::string_view name : names) {
    const Node* node = Find(name);
    if (node == nullptr) continue;
    if (first == nullptr) {
      first = node;
      first_name = name;
    } else {
      findings_->Problem(
          node->place,
          absl::StrCat("is another name of ", first_name,
                       ", which is given as well; keep one of the two"));
    }
  }
  return first;
}

bool Section::Read(absl::string_view key, Setting<bool>& setting) {
  const Node* node = Find(key);
  if (node == nullptr) return false;
  const std::optional<bool> value = AsBool(*node);
  if (!value.has_value()) {
    findings_->Problem(node->place, NotExpected(*node, "true or false"));
    return false;
  }
  setting = Setting<bool>(*value, node->place);
  return true;
}

bool Section::Read(absl::string_view key, IntegerRange range,
                   Setting<int64_t>& setting) {
  const Node* node = Find(key);
  if (node == nullptr) return false;
  const std::optional<int64_t> value = AsInteger(*node);
  if (!value.has_value() || *value < range.least || *value > range.most) {
    findings_->Problem(node->place, NotExpected(*node, RangeText(range)));
    return false;
  }
  setting = Setting<int64_t>(*value, node->place);
  return true;
}

bool Section::Read(absl::string_view key, IntegerRange range,
                   Setting<std::optional<int64_t>>& setting) {
  Setting<int64_t> value;
  if (!Read(key, range, value)) return false;
  setting = Setting<std::optional<int64_t>>(*value, *value.place());
  return true;
}

bool Section::Read(absl::string_view key, RealRange range,
                   Setting<std::optional<double>>& setting) {
  const Node* node = Find(key);
  if (node == nullptr) return false;
  const std::optional<double> value = AsReal(*node);
  // NaN is not in any range.
  if (!value.has_value() || !(*value >= range.least && *value <= range.most)) {
    findings_->Problem(node->place, NotExpected(*node, RangeText(range)));
    return false;
  }
  setting = Setting<std::optional<double>>(*value, node->place);
  return true;
}

bool Section::Read(absl::string_view key, Setting<std::string>& setting) {
  const Node* node = Find(key);
  if (node == nullptr) return false;
  if (!node->is_scalar() || IsReference(*node)) {
    findings_->Problem(node->place, NotExpected(*node, "a string"));
    return false;
  }
  setting = Setting<std::string>(node->text, node->place);
  return true;
}

bool Section::Read(absl::string_view key,
                   Setting<std::vector<std::string>>& setting) {
  const Node* node = Find(key);
  if (node == nullptr) return false;
  std::vector<std::string> words;
  bool is_good = node->kind != Kind::kMap;
  for (const Node& item : node->items) {
    is_good = is_good && item.is_scalar() && item.kind != Kind::kNull;
    words.push_back(item.text);
  }
  if (!is_good) {
    findings_->Problem(node->place, "is not a list of strings");
    return false;
  }
  if (node->is_scalar()) {
    for (absl::string_view word : absl::StrSplit(node->text, ',')) {
      word = absl::StripAsciiWhitespace(word);
      if (!word.empty()) words.emplace_back(word);
    }
  }
  setting = Setting<std::vector<std::string>>(std::move(words), node->place);
  return true;
}

bool Section::Read(absl::string_view key, Setting<dcp::DType>& setting) {
  const Node* node = Find(key);
  if (node == nullptr) return false;
  const std::optional<dcp::DType> value =
      node->is_scalar() ? DtypeNamed(node->text) : std::nullopt;
  if (!value.has_value()) {
    findings_->Problem(node->place,
                       NotExpected(*node, "float32, bfloat16 or float16"));
    return false;
  }
  setting = Setting<dcp::DType>(*value, node->place);
  return true;
}

std::optional<size_t> Section::ReadChoice(
    absl::string_view key, const std::vector<absl::string_view>& words,
    SourceLocation& place) {
  const Node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  if (node->is_scalar()) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (!absl::EqualsIgnoreCase(node->text, words[i])) continue;
      place = node->place;
      return i;
    }
  }
  findings_->Problem(
      node->place,
      absl::StrCat(NotExpected(*node, Alternatives(words)),
                   node->is_scalar() ? DidYouMean(node->text, words) : ""));
  return std::nullopt;
}

void Section::Ignore(absl::string_view key, absl::string_view reason) {
  if (const Node* node = Find(key)) {
    findings_->Ignored(node->place, absl::StrCat("has no effect: ", reason));
  }
}

void Section::Refuse(absl::string_view key, absl::string_view harmless,
                     absl::string_view reason) {
  const Node* node = Find(key);
  if (node == nullptr || IsEmptyValue(*node) || SaysSame(*node, harmless)) {
    return;
  }
  findings_->Problem(node->place,
                     absl::StrCat("is ", ValueText(*node),
                                  ", which is not supported: ", reason));
}

void Section::Finish() {
  const std::vector<absl::string_view> known(known_.begin(), known_.end());
  size_t num_unknown = 0;
  for (const auto& [key, node] : map_->entries) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    if (++num_unknown > kMaxUnknownKeys) continue;
    const absl::string_view nearest = dcp::NearestWord(key, known);
    findings_->Problem(
        node.place,
        nearest.empty()
            ? "is not known"
            : absl::StrCat("is not known; did you mean ", nearest, "?"));
  }
  if (num_unknown > kMaxUnknownKeys) {
    findings_->Problem(map_->place,
                       absl::StrCat("has ", num_unknown - kMaxUnknownKeys,
                                    " more keys that are not known"));
  }
}

void Section::FinishLenient(absl::string_view reason) {
  std::vector<absl::string_view> others;
  size_t num_slips = 0;
  for (const auto& [key, node] : map_->entries) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const auto meant =
        std::find_if(known_.begin(), known_.end(),
                     [word = absl::string_view(key)](const std::string& known) {
                       return IsSlip(word, known);
                     });
    const absl::string_view subject = TrainingSubject(key);
    const bool asks = !subject.empty() && !AsksForNothing(node, subject);
    if (meant == known_.end() && asks) {
      if (++num_slips > kMaxUnknownKeys) continue;
      findings_->Problem(
          node.place,
          absl::StrCat("is not known, and asks for ", subject,
                       ": without it something else would be trained; take it "
                       "out, or give a file of a program that is read here"));
    } else if (meant == known_.end()) {
      others.push_back(key);
    } else if (++num_slips <= kMaxUnknownKeys) {
      findings_->Problem(
          node.place, absl::StrCat("is not known; did you mean ", *meant, "?"));
    }
  }
  if (others.empty()) return;
  const size_t num_shown = std::min(others.size(), kMaxShownKeys);
  std::string shown;
  for (size_t i = 0; i < num_shown; ++i) {
    Node word;
    word.kind = Kind::kReal;  // shown without quotes
    word.text = std::string(others[i]);
    absl::StrAppend(&shown, i == 0 ? "" : ", ", ValueText(word));
  }
  if (others.size() > num_shown) {
    absl::StrAppend(&shown, " and ", others.size() - num_shown, " more");
  }
  findings_->Ignored(map_->place, absl::StrCat("has keys without effect here (",
                                               shown, "): ", reason));
}

}  // namespace fsdp::config
