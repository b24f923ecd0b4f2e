// SPDX-License-Identifier: Apache-2.0
// Reads values from a Node, with errors that name the line.
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

absl::Status TreeFields::Refuse(document::TextPosition at,
                                absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(file_name_, ":", at.line, ":", at.column, ": ", what));
}

absl::Status TreeFields::Refuse(const Node& at, absl::string_view what) const {
  return Refuse(at.position(), what);
}

absl::Status TreeFields::At(const Node& at, const absl::Status& status) const {
  return Annotate(status, file_name_, ":", at.place.line, ":", at.place.column);
}

absl::StatusOr<std::string> TreeFields::Text(const Node& tree,
                                             absl::string_view what) const {
  if (tree.kind != Node::Kind::kString || tree.text.empty()) {
    return Refuse(tree, absl::StrCat(what, " is not a text"));
  }
  return tree.text;
}

absl::StatusOr<int64_t> TreeFields::Integer(const Node& tree,
                                            absl::string_view what) const {
  int64_t number = 0;
  if (tree.kind != Node::Kind::kString ||
      !absl::SimpleAtoi(tree.text, &number)) {
    return Refuse(tree, absl::StrCat(what, " is not an integer"));
  }
  return number;
}

absl::StatusOr<bool> TreeFields::Bool(const Node& tree,
                                      absl::string_view what) const {
  if (tree.kind == Node::Kind::kString) {
    if (tree.text == "true") return true;
    if (tree.text == "false") return false;
  }
  return Refuse(tree, absl::StrCat(what, " is neither true nor false"));
}

absl::StatusOr<std::vector<std::string>> TreeFields::Texts(
    const Node& tree, absl::string_view what) const {
  std::vector<std::string> texts;
  if (tree.kind == Node::Kind::kNull) return texts;
  if (tree.kind != Node::Kind::kList) {
    DCP_ASSIGN_OR_RETURN(texts.emplace_back(), Text(tree, what));
    return texts;
  }
  for (const Node& item : tree.items) {
    DCP_ASSIGN_OR_RETURN(texts.emplace_back(), Text(item, what));
  }
  return texts;
}

absl::StatusOr<Formula> TreeFields::ReadFormula(const Node& tree,
                                                absl::string_view what) const {
  DCP_ASSIGN_OR_RETURN(const std::string text, Text(tree, what));
  absl::StatusOr<Formula> formula = Formula::Parse(text);
  if (!formula.ok()) return At(tree, formula.status());
  return formula;
}

absl::StatusOr<NameTemplate> TreeFields::ReadName(
    const Node& tree, absl::string_view text) const {
  absl::StatusOr<NameTemplate> name = NameTemplate::Parse(text);
  if (!name.ok()) return At(tree, name.status());
  return name;
}

absl::Status TreeFields::CheckMap(const Node& tree,
                                  absl::string_view what) const {
  if (tree.kind == Node::Kind::kMap) return absl::OkStatus();
  return Refuse(tree, absl::StrCat(what, " is not a map of keys and values"));
}

absl::Status TreeFields::CheckList(const Node& tree,
                                   absl::string_view what) const {
  if (tree.kind == Node::Kind::kList) return absl::OkStatus();
  return Refuse(tree, absl::StrCat(what, " is not a list"));
}

absl::Status TreeFields::CheckKeys(
    const Node& tree, absl::Span<const absl::string_view> known) const {
  for (const Node::Entry& entry : tree.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) {
      continue;
    }
    const absl::string_view nearest = NearestWord(entry.key, known);
    return Refuse(
        entry.value.key_position,
        absl::StrCat(
            "unknown key ", absl::CHexEscape(entry.key),
            nearest.empty()
                ? absl::StrCat(", not one of ", absl::StrJoin(known, ", "))
                : absl::StrCat("; is ", nearest, " meant?")));
  }
  return absl::OkStatus();
}

}  // namespace dcp
