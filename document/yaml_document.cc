// SPDX-License-Identifier: Apache-2.0
// Reads YAML from yaml-cpp's events. yaml-cpp throws errors about a text, hence
// the one catch. The library's tree is not used, because it would expand
// aliases without a bound and forget which scalars were quoted. Events give
// both, and the parser's recursion stops at the first one that is refused.
//
// Tested by tests/document/strict_yaml_test.cc.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <initializer_list>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "document/node_builder.h"

namespace dcp::document {
namespace {

using Kind = Node::Kind;

bool IsOneOf(absl::string_view text, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    // As written here, in capitals, or with a capital first: "nO" is a string.
    const std::string lower = word;
    std::string title = lower;
    title[0] = absl::ascii_toupper(static_cast<unsigned char>(title[0]));
    if (text == lower || text == title || text == absl::AsciiStrToUpper(lower))
      return true;
  }
  return false;
}

// Removes [0-9][0-9_]* from the head of `text`; returns whether it matched.
bool TakeDigits(absl::string_view& text) {
  size_t length = 0;
  while (length < text.size() &&
         (absl::ascii_isdigit(static_cast<unsigned char>(text[length])) ||
          (length > 0 && text[length] == '_'))) {
    ++length;
  }
  text.remove_prefix(length);
  return length > 0;
}

bool TakeSign(absl::string_view& text) {
  if (text.empty() || (text[0] != '+' && text[0] != '-')) return false;
  text.remove_prefix(1);
  return true;
}

// A plain scalar's kind. PyYAML reads "8e-4" as a string. OmegaConf, which
// reads Composer's files, reads a number, and so does this.
Kind PlainKind(absl::string_view text) {
  if (text.empty() || text == "~" || text == "None" ||
      IsOneOf(text, {"null"})) {
    return Kind::kNull;
  }
  if (IsOneOf(text, {"true", "false", "yes", "no", "on", "off"})) {
    return Kind::kBool;
  }
  TakeSign(text);
  if (IsOneOf(text, {".inf", ".nan"}) || text == ".Inf" || text == ".NaN") {
    return Kind::kReal;
  }
  const bool has_whole = TakeDigits(text);
  if (has_whole && text.empty()) return Kind::kInteger;
  bool has_fraction = false;
  if (absl::ConsumePrefix(&text, ".")) has_fraction = TakeDigits(text);
  if (!has_whole && !has_fraction) return Kind::kString;
  if (absl::ConsumePrefix(&text, "e") || absl::ConsumePrefix(&text, "E")) {
    TakeSign(text);
    if (!TakeDigits(text)) return Kind::kString;
  }
  return text.empty() ? Kind::kReal : Kind::kString;
}

TextPosition ToPosition(const YAML::Mark& mark) {
  return {.line = mark.line + 1, .column = mark.column + 1};
}

// A comment after a strict text, so that the last line is complete. A quote
// that is not closed takes it into the value.
constexpr absl::string_view kEnd = "# the end of a rule file of mappings";

// Ends the parse from within an event.
class Stop : public std::exception {};

class Handler final : public YAML::EventHandler {
 public:
  explicit Handler(NodeBuilder& builder) : builder_(&builder) {}

  // Where the last scalar that was not plain began, with the anchor and tag.
  const YAML::Mark& last_quoted() const { return last_quoted_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) {
      Refuse(mark, is_strict() ? "begins a second document"
                               : "begins a second document, but a config is "
                                 "one; put each into a file of its own");
    }
    has_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnAnchor(const YAML::Mark& mark, const std::string& /*name*/) override {
    if (!is_strict()) return;
    Refuse(mark, "has an anchor; write the value where it is used");
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Scalar(mark, anchor, Kind::kNull, is_strict() ? "" : "null");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag,
                YAML::anchor_t anchor, const std::string& value) override {
    constexpr absl::string_view kPrefix = "tag:yaml.org,2002:";
    if (tag != "?") last_quoted_ = mark;
    if (is_strict()) {
      if (IsWritten(tag)) RefuseTag(mark, tag);
      if (absl::StrContains(value, kEnd)) {
        Refuse(mark, "has a quote that is not closed");
      }
      const bool is_null = tag != "!" && (value == "~" || value == "null");
      Scalar(mark, anchor, is_null ? Kind::kNull : Kind::kString, value);
    } else if (tag == "!" || tag == absl::StrCat(kPrefix, "str")) {
      Scalar(mark, anchor, Kind::kString, value);
    } else if (tag.empty() || tag == "?" ||
               tag == absl::StrCat(kPrefix, "int") ||
               tag == absl::StrCat(kPrefix, "float") ||
               tag == absl::StrCat(kPrefix, "bool") ||
               tag == absl::StrCat(kPrefix, "null")) {
      Scalar(mark, anchor, PlainKind(value), value);
    } else {
      RefuseTag(mark, tag);
    }
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (is_strict()) {
      Refuse(mark, "has an alias; write the value where it is used");
    }
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) Refuse(mark, "has an alias within its anchor");
    if (builder_->expects_key()) {
      Key(mark, it->second);
    } else {
      Check(builder_->Copy(it->second, ToPosition(mark)));
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Begin(mark, tag, anchor, Kind::kList);
  }
  void OnSequenceEnd() override { End(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag,
                  YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    Begin(mark, tag, anchor, Kind::kMap);
  }
  void OnMapEnd() override { End(); }

 private:
  struct Anchor {
    YAML::anchor_t anchor;
    YAML::Mark mark;
  };

  bool is_strict() const { return builder_->is_strict(); }

  // The tag "?" means plain and "!" quoted; others are written in the text.
  static bool IsWritten(absl::string_view tag) {
    return !tag.empty() && tag != "?" && tag != "!";
  }

  static void Check(bool go_on) {
    if (!go_on) throw Stop();
  }

  [[noreturn]] void Refuse(const YAML::Mark& mark, absl::string_view what) {
    builder_->Fail(ToPosition(mark), what);
    throw Stop();
  }

  [[noreturn]] void RefuseTag(const YAML::Mark& mark, absl::string_view tag) {
    if (is_strict()) Refuse(mark, "has a tag, which no rule file needs");
    Refuse(mark, absl::StrCat("has a value with the tag ", tag.substr(0, 80),
                              ", which no config needs"));
  }

  [[noreturn]] void RefuseKey(const YAML::Mark& mark) {
    Refuse(mark, is_strict() ? "has a key that is not a text"
                             : "has a key that is not a word");
  }

  void Key(const YAML::Mark& mark, const Node& key) {
    if (!key.is_scalar()) RefuseKey(mark);
    if (is_strict()) {
      if (key.kind == Kind::kNull) Refuse(mark, "has a key that is empty");
      if (key.text == "<<") {
        Refuse(mark, "has a merge key; write the keys here");
      }
    }
    Check(builder_->Key(key.text, ToPosition(mark)));
  }

  void Scalar(const YAML::Mark& mark, YAML::anchor_t anchor, Kind kind,
              absl::string_view text) {
    if (builder_->expects_key()) {
      Node key;
      key.kind = kind;
      key.text = std::string(text);
      Key(mark, key);
      if (anchor != YAML::NullAnchor) Keep({anchor, mark}, key);
      return;
    }
    Check(builder_->Scalar(kind, text, ToPosition(mark)));
    if (anchor != YAML::NullAnchor) Keep({anchor, mark}, builder_->last());
  }

  void Begin(const YAML::Mark& mark, absl::string_view tag,
             YAML::anchor_t anchor, Kind kind) {
    if (IsWritten(tag) && (is_strict() || (tag != "tag:yaml.org,2002:map" &&
                                           tag != "tag:yaml.org,2002:seq"))) {
      RefuseTag(mark, tag);
    }
    if (builder_->expects_key()) RefuseKey(mark);
    Check(builder_->Begin(kind, ToPosition(mark)));
    open_.push_back({anchor, mark});
  }

  void End() {
    const Anchor open = open_.back();
    open_.pop_back();
    Check(builder_->End());
    if (open.anchor != YAML::NullAnchor) Keep(open, builder_->last());
  }

  void Keep(const Anchor& anchor, const Node& node) {
    Check(builder_->Count(node, ToPosition(anchor.mark)));
    anchors_[anchor.anchor] = node;
  }

  NodeBuilder* builder_;
  std::vector<Anchor> open_;                // of open lists and maps
  std::map<YAML::anchor_t, Node> anchors_;  // counted as nodes
  YAML::Mark last_quoted_ = YAML::Mark::null_mark();
  bool has_document_ = false;
};

bool IsMapOrMaps(const Node& node) {
  if (node.kind == Kind::kMap) return true;
  if (node.kind != Kind::kList) return false;
  for (const Node& item : node.items) {
    if (item.kind != Kind::kMap) return false;
  }
  return true;
}

// `<<: *base` gives a map the keys of another map that it does not have itself.
void Merge(Node& node) {
  for (Node& item : node.items) Merge(item);
  for (auto& [key, value] : node.entries) Merge(value);
  const Node* base = node.Find("<<");
  if (base == nullptr || !IsMapOrMaps(*base)) return;
  std::vector<Node::Entry> own;
  std::vector<Node> bases;
  std::set<std::string> keys;
  for (auto& [key, value] : node.entries) {
    if (key == "<<") {
      bases = std::move(value.items);
      if (value.kind == Kind::kMap) bases.push_back(std::move(value));
    } else {
      keys.insert(key);
      own.push_back({key, std::move(value)});
    }
  }
  for (Node& from : bases) {
    for (auto& [key, value] : from.entries) {
      if (keys.insert(key).second) own.push_back({key, std::move(value)});
    }
  }
  node.entries = std::move(own);
}

// Skips the anchor and the tag that `text` may begin with.
void TakeProperties(absl::string_view& text) {
  text = absl::StripLeadingAsciiWhitespace(text);
  while (!text.empty() && (text[0] == '&' || text[0] == '!')) {
    const size_t end = text.find_first_of(" \t\r\n");
    text.remove_prefix(std::min(end, text.size()));
    text = absl::StripLeadingAsciiWhitespace(text);
  }
}

// yaml-cpp lets the text's end close a quoted scalar; the keys after a missing
// quote would disappear silently.
bool IsQuoteClosed(absl::string_view text) {
  TakeProperties(text);
  if (text.empty() || (text[0] != '\'' && text[0] != '"')) return true;
  const char quote = text[0];
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 == text.size() || text[i + 1] != quote) {
        return true;
      }
      ++i;
    }
  }
  return false;
}

// The first line that is indented with a tab; 0: there is none. YAML does not
// allow tabs, and the parser reports the consequences only later.
int FindTabLine(absl::string_view text) {
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == absl::string_view::npos || line[begin] == '#') continue;
    if (absl::StrContains(line.substr(0, begin), '\t')) return number;
  }
  return 0;
}

}  // namespace

void ReadYaml(absl::string_view text, NodeBuilder& builder) {
  constexpr absl::string_view kTab =
      "the line is indented with a tab; write spaces";
  const int tab = FindTabLine(text);
  if (builder.is_strict() && tab > 0) {
    builder.Fail({.line = tab, .column = 1}, kTab);
    return;
  }
  std::istringstream stream(builder.is_strict()
                                ? absl::StrCat(text, "\n", kEnd, "\n")
                                : std::string(text));
  Handler handler(builder);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(handler)) {
    }
    const YAML::Mark& quoted = handler.last_quoted();
    if (!quoted.is_null() &&
        !IsQuoteClosed(text.substr(static_cast<size_t>(quoted.pos)))) {
      builder.Fail(ToPosition(quoted), "has a quote that is not closed");
    }
  } catch (const Stop&) {
    // The builder has the problem.
  } catch (const YAML::Exception& error) {
    if (tab > 0 && tab <= error.mark.line + 1) {
      builder.Fail({.line = tab, .column = 1},
                   absl::StrCat("is not valid YAML: ", kTab));
    } else {
      builder.Fail(ToPosition(error.mark),
                   absl::StrCat("is not valid YAML: ", error.msg));
    }
  }
  Merge(builder.root());
}

}  // namespace dcp::document
