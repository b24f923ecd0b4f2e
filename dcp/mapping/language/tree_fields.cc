// SPDX-License-Identifier: Apache-2.0
// Reads values from a YamlTree, with errors that name the line.
// Tested by tests/dcp/mapping/language/mapping_file_test.cc.
#include "dcp/mapping/language/tree_fields.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/nearest_word.h"
#include "dcp/base/status.h"

namespace dcp {

absl::Status TreeFields::Refuse(const YamlTree& at,
                                absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(file_name_, ":", at.line, ":", at.column, ": ", what));
}

absl::Status TreeFields::At(const YamlTree& at,
                            const absl::Status& status) const {
  return Annotate(status, file_name_, ":", at.line, ":", at.column);
}

absl::StatusOr<std::string> TreeFields::Text(const YamlTree& tree,
                                             absl::string_view what) const {
  if (!tree.is(YamlTree::Kind::kText) || tree.text.empty()) {
    return Refuse(tree, absl::StrCat(what, " is not a text"));
  }
  return tree.text;
}

absl::StatusOr<int64_t> TreeFields::Integer(const YamlTree& tree,
                                            absl::string_view what) const {
  int64_t number = 0;
  if (!tree.is(YamlTree::Kind::kText) ||
      !absl::SimpleAtoi(tree.text, &number)) {
    return Refuse(tree, absl::StrCat(what, " is not an integer"));
  }
  return number;
}

absl::StatusOr<bool> TreeFields::Bool(const YamlTree& tree,
                                      absl::string_view what) const {
  if (tree.is(YamlTree::Kind::kText)) {
    if (tree.text == "true") return true;
    if (tree.text == "false") return false;
  }
  return Refuse(tree, absl::StrCat(what, " is neither true nor false"));
}

absl::StatusOr<std::vector<std::string>> TreeFields::Texts(
    const YamlTree& tree, absl::string_view what) const {
  std::vector<std::string> texts;
  if (tree.is(YamlTree::Kind::kNull)) return texts;
  if (!tree.is(YamlTree::Kind::kList)) {
    DCP_ASSIGN_OR_RETURN(texts.emplace_back(), Text(tree, what));
    return texts;
  }
  for (const YamlTree& item : tree.items) {
    DCP_ASSIGN_OR_RETURN(texts.emplace_back(), Text(item, what));
  }
  return texts;
}

absl::StatusOr<Formula> TreeFields::ReadFormula(const YamlTree& tree,
                                                absl::string_view what) const {
  DCP_ASSIGN_OR_RETURN(const std::string text, Text(tree, what));
  absl::StatusOr<Formula> formula = Formula::Parse(text);
  if (!formula.ok()) return At(tree, formula.status());
  return formula;
}

absl::StatusOr<NameTemplate> TreeFields::ReadName(
    const YamlTree& tree, absl::string_view text) const {
  absl::StatusOr<NameTemplate> name = NameTemplate::Parse(text);
  if (!name.ok()) return At(tree, name.status());
  return name;
}

absl::Status TreeFields::CheckMap(const YamlTree& tree,
                                  absl::string_view what) const {
  if (tree.is(YamlTree::Kind::kMap)) return absl::OkStatus();
  return Refuse(tree, absl::StrCat(what, " is not a map of keys and values"));
}

absl::Status TreeFields::CheckList(const YamlTree& tree,
                                   absl::string_view what) const {
  if (tree.is(YamlTree::Kind::kList)) return absl::OkStatus();
  return Refuse(tree, absl::StrCat(what, " is not a list"));
}

absl::Status TreeFields::CheckKeys(
    const YamlTree& tree, absl::Span<const absl::string_view> known) const {
  for (const YamlTree::Entry& entry : tree.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) {
      continue;
    }
    const absl::string_view nearest = NearestWord(entry.key, known);
    YamlTree place;
    place.line = entry.line;
    place.column = entry.column;
    return Refuse(
        place, absl::StrCat("unknown key ", absl::CHexEscape(entry.key),
                            nearest.empty()
                                ? absl::StrCat(", not one of ",
                                               absl::StrJoin(known, ", "))
                                : absl::StrCat("; is ", nearest, " meant?")));
  }
  return absl::OkStatus();
}

}  // namespace dcp
