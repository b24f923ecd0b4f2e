// SPDX-License-Identifier: Apache-2.0
// Reads rules, writes out `each`, and spells derived sides.
// Tested by tests/dcp/mapping/language/mapping_file_test.cc.
#include "dcp/mapping/language/rule_reader.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/mapping/language/rule_checks.h"
#include "dcp/mapping/language/word_bytes.h"

namespace dcp {
namespace {

using Kind = Node::Kind;

constexpr absl::string_view kOptions[] = {"when",     "for",    "of",
                                          "optional", "copies", "tolerates",
                                          "dtype",    "add",    "scale"};

}  // namespace

RuleReader::RuleReader(const TreeFields& fields, MappingFile& file)
    : fields_(fields), file_(file) {}

absl::Status RuleReader::Read(const Node& rules) {
  DCP_RETURN_IF_ERROR(fields_.CheckList(rules, "rules"));
  for (const Node& rule : rules.items) {
    DCP_RETURN_IF_ERROR(fields_.CheckMap(rule, "a rule"));
    DCP_RETURN_IF_ERROR(rule.Find("each") != nullptr
                            ? ReadEach(rule)
                            : ReadRule(rule, /*is_optional=*/false));
  }
  if (file_.rules.empty()) return fields_.Refuse(rules, "there are no rules");
  return absl::OkStatus();
}

absl::Status RuleReader::Spend(document::TextPosition at, size_t num_bytes) {
  num_bytes_ += num_bytes;
  if (num_bytes_ <= kMaxMappingRuleBytes) return absl::OkStatus();
  return fields_.Refuse(
      at, absl::StrCat("the rules of all sides, written out, exceed ",
                       kMaxMappingRuleBytes, " bytes"));
}

absl::Status RuleReader::ReadEach(const Node& tree) {
  DCP_RETURN_IF_ERROR(fields_.CheckKeys(tree, {"each", "rules"}));
  const Node* rules = tree.Find("rules");
  if (rules == nullptr) return fields_.Refuse(tree, "each has no rules");
  DCP_RETURN_IF_ERROR(fields_.CheckList(*rules, "rules"));
  const Node& each = *tree.Find("each");
  DCP_RETURN_IF_ERROR(fields_.CheckList(each, "each"));
  for (const Node& set : each.items) {
    DCP_RETURN_IF_ERROR(fields_.CheckMap(set, "a set of words"));
    Words words;
    bool is_optional = false;
    for (const auto& [word, value] : set.entries) {
      if (word == "optional") {
        DCP_ASSIGN_OR_RETURN(is_optional, fields_.Bool(value, word));
      } else {
        DCP_ASSIGN_OR_RETURN(words[word], fields_.Text(value, word));
      }
    }
    for (const Node& rule : rules->items) {
      DCP_RETURN_IF_ERROR(fields_.CheckMap(rule, "a rule"));
      if (rule.Find("each") != nullptr) {
        return fields_.Refuse(rule, "each within each");
      }
      DCP_ASSIGN_OR_RETURN(const Node written, WriteOut(rule, words));
      DCP_RETURN_IF_ERROR(ReadRule(written, is_optional));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Node> RuleReader::WriteOut(const Node& tree,
                                          const Words& words) {
  Node result;
  result.kind = tree.kind;
  result.place = tree.place;
  result.key_position = tree.key_position;
  DCP_ASSIGN_OR_RETURN(result.text,
                       WriteOut(tree.position(), tree.text, words));
  for (const Node& item : tree.items) {
    DCP_ASSIGN_OR_RETURN(result.items.emplace_back(), WriteOut(item, words));
  }
  for (const Node::Entry& entry : tree.entries) {
    Node::Entry written;
    DCP_ASSIGN_OR_RETURN(written.key,
                         WriteOut(entry.value.key_position, entry.key, words));
    if (result.Find(written.key) != nullptr) {
      return fields_.Refuse(entry.value.key_position,
                            absl::StrCat(written.key, " occurs twice"));
    }
    DCP_ASSIGN_OR_RETURN(written.value, WriteOut(entry.value, words));
    result.entries.push_back(std::move(written));
  }
  return result;
}

// Replaces every $WORD.
absl::StatusOr<std::string> RuleReader::WriteOut(document::TextPosition at,
                                                 absl::string_view text,
                                                 const Words& words) {
  std::string result;
  while (true) {
    const size_t dollar = text.find('$');
    absl::StrAppend(&result, text.substr(0, dollar));
    if (dollar == absl::string_view::npos) break;
    text.remove_prefix(dollar + 1);
    size_t length = 0;
    while (length < text.size() && IsWordByte(text[length])) ++length;
    const auto it = words.find(std::string(text.substr(0, length)));
    if (it == words.end()) {
      return fields_.Refuse(at, absl::StrCat("$", text.substr(0, length),
                                             " is not a word of each"));
    }
    result += it->second;
    if (result.size() > kMaxMappingTextBytes) {
      return fields_.Refuse(
          at, absl::StrCat("is longer than ", kMaxMappingTextBytes,
                           " with the words of each"));
    }
    text.remove_prefix(length);
  }
  DCP_RETURN_IF_ERROR(Spend(at, result.size()));
  return result;
}

absl::Status RuleReader::ReadRule(const Node& tree, bool is_optional) {
  std::vector<absl::string_view> known(std::begin(kOptions),
                                       std::end(kOptions));
  for (const MappingSide& side : file_.sides) known.push_back(side.name);
  DCP_RETURN_IF_ERROR(fields_.CheckKeys(tree, known));
  if (file_.rules.size() == kMaxMappingRules) {
    return fields_.Refuse(
        tree, absl::StrCat("there are more than ", kMaxMappingRules, " rules"));
  }
  MappingRule rule;
  rule.line = tree.place.line;
  if (is_optional) {
    DCP_ASSIGN_OR_RETURN(rule.optional, Formula::Parse("1"));
  }
  DCP_RETURN_IF_ERROR(ReadOptions(tree, rule));
  for (const MappingSide& side : file_.sides) {
    DCP_ASSIGN_OR_RETURN(const std::optional<std::vector<Written>> terms,
                         ReadSideTerms(tree, side));
    if (!terms.has_value()) continue;
    DCP_ASSIGN_OR_RETURN(rule.sides[side.name],
                         ParseTerms(tree, side.name, *terms));
  }
  if (!rule.sides.contains(file_.pivot())) {
    return fields_.Refuse(
        tree, absl::StrCat("the rule does not say ", file_.pivot(),
                           ", the first side, which every rule has to"));
  }
  DCP_RETURN_IF_ERROR(CheckTies(tree, rule));
  DCP_RETURN_IF_ERROR(CheckRescale(tree, rule));
  for (const auto& [side, terms] : rule.sides) {
    if (side == file_.pivot()) continue;
    const absl::Status checked = CheckRule(file_, rule, file_.pivot(), side);
    if (!checked.ok()) return fields_.At(tree, checked);
  }
  file_.rules.push_back(std::move(rule));
  return absl::OkStatus();
}

absl::Status RuleReader::ReadOptions(const Node& tree, MappingRule& rule) {
  if (const Node* when = tree.Find("when")) {
    DCP_ASSIGN_OR_RETURN(rule.when, fields_.ReadFormula(*when, "when"));
  }
  if (const Node* optional = tree.Find("optional")) {
    if (optional->text == "true") {
      DCP_ASSIGN_OR_RETURN(rule.optional, Formula::Parse("1"));
    } else if (optional->text != "false" && !rule.optional.has_value()) {
      DCP_ASSIGN_OR_RETURN(rule.optional,
                           fields_.ReadFormula(*optional, "optional"));
    }
  }
  if (const Node* of = tree.Find("of")) {
    if (of->text == "model") {
      rule.part = MappingRule::Part::kModel;
    } else if (of->text == "states") {
      rule.part = MappingRule::Part::kStates;
    } else {
      return fields_.Refuse(*of, "of is neither model nor states");
    }
  }
  if (const Node* dtype = tree.Find("dtype")) {
    DCP_ASSIGN_OR_RETURN(const std::string name, fields_.Text(*dtype, "dtype"));
    rule.dtype = DTypeFromTorchName(name);
    if (!rule.dtype.has_value()) {
      return fields_.Refuse(
          *dtype, absl::StrCat(name, " is not a type, such as float32"));
    }
  }
  DCP_RETURN_IF_ERROR(ReadNames(tree, "copies", rule.copies));
  DCP_RETURN_IF_ERROR(ReadNames(tree, "tolerates", rule.tolerated));
  DCP_RETURN_IF_ERROR(ReadRescale(tree, "scale", &Rescale::scale, rule));
  DCP_RETURN_IF_ERROR(ReadRescale(tree, "add", &Rescale::add, rule));
  const Node* ranges = tree.Find("for");
  if (ranges == nullptr) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(fields_.CheckMap(*ranges, "for"));
  for (const auto& [index, value] : ranges->entries) {
    DCP_ASSIGN_OR_RETURN(const std::string text,
                         fields_.Text(value, "a range"));
    const std::vector<absl::string_view> ends = absl::StrSplit(text, "..");
    if (ends.size() != 2) {
      return fields_.Refuse(
          value, absl::StrCat("the range of ", index, " is not FIRST .. END"));
    }
    absl::StatusOr<Formula> first = Formula::Parse(ends[0]);
    if (!first.ok()) return fields_.At(value, first.status());
    absl::StatusOr<Formula> end = Formula::Parse(ends[1]);
    if (!end.ok()) return fields_.At(value, end.status());
    rule.ranges.push_back(
        {.index = index, .first = *std::move(first), .end = *std::move(end)});
  }
  return absl::OkStatus();
}

// A map from sides to numbers. A number also holds for sides derived from that
// one.
absl::Status RuleReader::ReadRescale(const Node& tree, absl::string_view key,
                                     float Rescale::*field, MappingRule& rule) {
  const Node* numbers = tree.Find(key);
  if (numbers == nullptr) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(fields_.CheckMap(*numbers, key));
  std::map<std::string, float> by_side;
  for (const Node::Entry& entry : numbers->entries) {
    if (file_.FindSide(entry.key) == nullptr || entry.key == file_.pivot()) {
      return fields_.Refuse(
          entry.value.key_position,
          absl::StrCat(entry.key, " is not a side that can have ", key,
                       ", which is every side but the first, ", file_.pivot()));
    }
    float& number = by_side[entry.key];
    if (!absl::SimpleAtof(entry.value.text, &number) ||
        !std::isfinite(number) || (key == "scale" && number == 0)) {
      return fields_.Refuse(
          entry.value.key_position,
          absl::StrCat("\"", entry.value.text, "\" is not a number for ", key,
                       key == "scale" ? ", which is finite and not 0"
                                      : ", which is finite"));
    }
  }
  // A derived side comes after the side that it is derived from.
  for (const MappingSide& side : file_.sides) {
    auto it = by_side.find(side.name);
    if (it == by_side.end()) it = by_side.find(side.of);
    if (it == by_side.end()) continue;
    by_side[side.name] = it->second;
    rule.rescaled[side.name].*field = it->second;
  }
  return absl::OkStatus();
}

// A map from sides to names. Derived sides spell them in their own way.
absl::Status RuleReader::ReadNames(
    const Node& tree, absl::string_view key,
    std::map<std::string, std::vector<std::string>>& out) {
  const Node* names = tree.Find(key);
  if (names == nullptr) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(fields_.CheckMap(*names, key));
  for (const Node::Entry& entry : names->entries) {
    if (file_.FindSide(entry.key) == nullptr) {
      return fields_.Refuse(entry.value.key_position,
                            absl::StrCat(entry.key, " is not a side"));
    }
  }
  // A derived side comes after the side that it is derived from.
  for (const MappingSide& side : file_.sides) {
    if (const Node* written = names->Find(side.name)) {
      DCP_ASSIGN_OR_RETURN(out[side.name], fields_.Texts(*written, key));
    } else if (const auto it = out.find(side.of); it != out.end()) {
      std::vector<std::string> spelled;
      for (const std::string& name : it->second) {
        std::vector<std::string> stacked;
        DCP_ASSIGN_OR_RETURN(spelled.emplace_back(),
                             Spell(side, name, stacked));
        DCP_RETURN_IF_ERROR(Spend(tree.position(), spelled.back().size()));
      }
      out[side.name] = std::move(spelled);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RuleReader::Spell(
    const MappingSide& derived, absl::string_view name,
    std::vector<std::string>& stacked) {
  std::string result(name);
  for (const auto& [from, to] : derived.spell) {
    result = absl::StrReplaceAll(result, {{from, to}});
    if (result.size() > kMaxMappingTextBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the name \"", name, "\" is longer than ",
                       kMaxMappingTextBytes, " as ", derived.name));
    }
  }
  for (const std::string& index : derived.stack) {
    const std::string slot = absl::StrCat("{", index, "}.");
    if (!absl::StrContains(result, slot)) continue;
    result = absl::StrReplaceAll(result, {{slot, ""}});
    stacked.push_back(index);
  }
  return result;
}

absl::StatusOr<std::optional<std::vector<RuleReader::Written>>>
RuleReader::ReadSideTerms(const Node& tree, const MappingSide& side) {
  if (const Node* written = tree.Find(side.name)) {
    DCP_ASSIGN_OR_RETURN(std::vector<Written> terms, ReadTerms(*written));
    return terms;
  }
  if (side.of.empty()) return std::nullopt;
  DCP_ASSIGN_OR_RETURN(std::optional<std::vector<Written>> terms,
                       ReadSideTerms(tree, *file_.FindSide(side.of)));
  if (!terms.has_value()) return std::nullopt;
  for (Written& term : *terms) {
    if (term.name.empty()) continue;
    std::vector<std::string> stacked;
    absl::StatusOr<std::string> spelled = Spell(side, term.name, stacked);
    if (!spelled.ok()) return fields_.At(tree, spelled.status());
    term.name = *std::move(spelled);
    term.axes = term.axes.WithLeading(stacked);
    DCP_RETURN_IF_ERROR(Spend(tree.position(), term.name.size()));
  }
  return terms;
}

absl::StatusOr<std::vector<RuleReader::Written>> RuleReader::ReadTerms(
    const Node& tree) {
  std::vector<Written> terms;
  if (tree.kind != Kind::kList) {
    DCP_ASSIGN_OR_RETURN(terms.emplace_back(), ReadTerm(tree));
    return terms;
  }
  for (const Node& item : tree.items) {
    DCP_ASSIGN_OR_RETURN(terms.emplace_back(), ReadTerm(item));
  }
  if (terms.empty()) return fields_.Refuse(tree, "the side has no terms");
  return terms;
}

absl::StatusOr<RuleReader::Written> RuleReader::ReadTerm(const Node& tree) {
  Written term;
  std::string axes = "...";
  if (tree.kind == Kind::kMap && tree.entries.size() == 1) {
    term.name = tree.entries[0].key;
    // Without axes, it is one number.
    axes = tree.entries[0].value.text;
    if (tree.entries[0].value.kind != Kind::kString) {
      return fields_.Refuse(tree, "the axes of a term are not a text");
    }
  } else if (tree.kind == Kind::kString) {
    term.name = tree.text;
  } else {
    return fields_.Refuse(tree, "a term is neither NAME nor NAME: AXES");
  }
  DCP_RETURN_IF_ERROR(Spend(tree.position(), term.name.size() + axes.size()));
  if (term.name == "=0") {
    term.name.clear();
  } else if (term.name.empty() || term.name[0] == '=') {
    return fields_.Refuse(tree, "the only constant is =0");
  }
  absl::StatusOr<Axes> parsed = Axes::Parse(axes);
  if (!parsed.ok()) return fields_.At(tree, parsed.status());
  term.axes = *std::move(parsed);
  return term;
}

absl::StatusOr<std::vector<MappingTerm>> RuleReader::ParseTerms(
    const Node& tree, absl::string_view side,
    const std::vector<Written>& written) {
  std::vector<MappingTerm> terms;
  size_t num_summands = 0;
  for (const Written& from : written) {
    MappingTerm& term = terms.emplace_back();
    term.axes = from.axes;
    num_summands += term.axes.num_summands();
    if (from.name.empty()) continue;
    DCP_ASSIGN_OR_RETURN(term.name, fields_.ReadName(tree, from.name));
  }
  if (num_summands > kMaxMappingSummands) {
    return fields_.Refuse(
        tree, absl::StrCat(side, " has ", num_summands, " summands, more than ",
                           kMaxMappingSummands));
  }
  const absl::Status checked = CheckTerms(terms, side);
  if (!checked.ok()) return fields_.At(tree, checked);
  return terms;
}

absl::Status RuleReader::CheckTies(const Node& tree, const MappingRule& rule) {
  for (const auto* ties : {&rule.copies, &rule.tolerated}) {
    for (const auto& [side, names] : *ties) {
      const auto it = rule.sides.find(side);
      if (it == rule.sides.end()) continue;
      const MappingTerm& first = it->second.front();
      if (!first.name.has_value() || !first.name->variables().empty()) {
        return fields_.Refuse(
            tree, absl::StrCat("copies and tolerated names of ", side,
                               " need a first term without variables"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RuleReader::CheckRescale(const Node& tree,
                                      const MappingRule& rule) {
  for (const auto& [side, rescale] : rule.rescaled) {
    if (!rule.sides.contains(side)) {
      return fields_.Refuse(tree,
                            absl::StrCat("the rule has add or scale for ", side,
                                         ", which it does not say"));
    }
  }
  if (rule.rescaled.empty()) return absl::OkStatus();
  for (const auto& [side, terms] : rule.sides) {
    for (const MappingTerm& term : terms) {
      if (term.name.has_value()) continue;
      return fields_.Refuse(
          tree, "a rule with constants can have neither add nor scale");
    }
  }
  return absl::OkStatus();
}

}  // namespace dcp
