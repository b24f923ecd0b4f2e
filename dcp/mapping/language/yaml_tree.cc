// SPDX-License-Identifier: Apache-2.0
// yaml-cpp throws its errors about a text, hence the one catch. yaml-cpp's own
// tree is not used, because it is built without limits, after the whole text is
// parsed. Events stop the parser at the first one that is refused.
#include "dcp/mapping/language/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dcp/mapping/language/mapping_limits.h"

namespace dcp {
namespace {

using Kind = YamlTree::Kind;

// A comment that is appended to the text. yaml-cpp treats the end of a text as
// the end of a quoted string, so the text after a missing quote would disappear
// silently; with this at the end it shows in the value.
constexpr absl::string_view kEnd = "# the end of a rule file of mappings";

// Ends the parse from within an event.
class Stop : public std::exception {};

class Handler final : public YAML::EventHandler {
 public:
  explicit Handler(absl::string_view file_name) : file_name_(file_name) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) Refuse(mark, "begins a second document");
    has_document_ = true;
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& /*name*/) override {
    Refuse(mark, "has an anchor; write the value where it is used");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Refuse(mark, "has an alias; write the value where it is used");
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Text(mark, "", /*is_null=*/true);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag,
                YAML::anchor_t /*anchor*/, const std::string& value) override {
    // "?" is a plain text, and "!" a quoted one.
    if (tag != "?" && tag != "!" && !tag.empty()) RefuseTag(mark);
    if (absl::StrContains(value, kEnd)) {
      Refuse(mark, "has a quote that is not closed");
    }
    Text(mark, value,
         /*is_null=*/tag != "!" && (value == "~" || value == "null"));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag,
                       YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    Begin(mark, tag, Kind::kList);
  }
  void OnSequenceEnd() override { End(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag,
                  YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    Begin(mark, tag, Kind::kMap);
  }
  void OnMapEnd() override { End(); }

  absl::Status& status() { return status_; }
  YamlTree& root() { return root_; }

  void Fail(const YAML::Mark& mark, absl::string_view what) {
    status_ = absl::InvalidArgumentError(absl::StrCat(
        file_name_, ":", mark.line + 1, ":", mark.column + 1, ": ", what));
  }

 private:
  struct Open {
    YamlTree node;
    YamlTree::Entry entry;  // for a map: has the key for the next value
    bool has_key = false;
  };

  [[noreturn]] void Refuse(const YAML::Mark& mark, absl::string_view what) {
    Fail(mark, what);
    throw Stop();
  }
  [[noreturn]] void RefuseTag(const YAML::Mark& mark) {
    Refuse(mark, "has a tag, which no rule file needs");
  }

  bool ExpectsKey() const {
    return !open_.empty() && open_.back().node.is(Kind::kMap) &&
           !open_.back().has_key;
  }

  YamlTree NodeAt(const YAML::Mark& mark, Kind kind) {
    if (++num_nodes_ > kMaxMappingNodes) {
      Refuse(mark, absl::StrCat("has more than ", kMaxMappingNodes, " values"));
    }
    YamlTree node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void Text(const YAML::Mark& mark, const std::string& text, bool is_null) {
    if (text.size() > kMaxMappingTextBytes) {
      Refuse(mark, absl::StrCat("has a text of ", text.size(),
                                " bytes, more than ", kMaxMappingTextBytes));
    }
    YamlTree node = NodeAt(mark, is_null ? Kind::kNull : Kind::kText);
    node.text = text;
    if (ExpectsKey()) {
      Key(mark, std::move(node));
    } else {
      Attach(std::move(node));
    }
  }

  void Key(const YAML::Mark& mark, YamlTree node) {
    Open& open = open_.back();
    if (!node.is(Kind::kText)) Refuse(mark, "has a key that is empty");
    if (node.text == "<<") Refuse(mark, "has a merge key; write the keys here");
    if (open.node.entries.size() == kMaxMappingKeys) {
      Refuse(mark, absl::StrCat("has more than ", kMaxMappingKeys, " keys"));
    }
    if (open.node.Find(node.text) != nullptr) {
      Refuse(mark, absl::StrCat("has the key ", absl::CHexEscape(node.text),
                                " twice"));
    }
    open.entry.key = std::move(node.text);
    open.entry.line = node.line;
    open.entry.column = node.column;
    open.has_key = true;
  }

  void Begin(const YAML::Mark& mark, absl::string_view tag, Kind kind) {
    if (!tag.empty() && tag != "?" && tag != "!") RefuseTag(mark);
    if (ExpectsKey()) Refuse(mark, "has a key that is not a text");
    if (open_.size() == kMaxMappingDepth) {
      Refuse(mark, absl::StrCat("is nested deeper than ", kMaxMappingDepth));
    }
    Open open;
    open.node = NodeAt(mark, kind);
    open_.push_back(std::move(open));
  }

  void End() {
    YamlTree node = std::move(open_.back().node);
    open_.pop_back();
    Attach(std::move(node));
  }

  void Attach(YamlTree node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& open = open_.back();
    if (open.node.is(Kind::kList)) {
      open.node.items.push_back(std::move(node));
      return;
    }
    open.entry.value = std::move(node);
    open.node.entries.push_back(std::move(open.entry));
    open.has_key = false;
  }

  const absl::string_view file_name_;
  absl::Status status_;
  std::vector<Open> open_;
  YamlTree root_;
  size_t num_nodes_ = 0;
  bool has_document_ = false;
};

// The first line that is indented with a tab; 0 if there is none. YAML does not
// allow tabs, and the parser reports their effects only later.
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

const YamlTree* YamlTree::Find(absl::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

absl::StatusOr<YamlTree> ParseYamlTree(absl::string_view text,
                                       absl::string_view file_name) {
  if (text.size() > kMaxMappingBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": has ", text.size(), " bytes, more than ",
                     kMaxMappingBytes));
  }
  if (const int line = FindTabLine(text); line > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ":", line,
                     ":1: the line is indented with a tab; write spaces"));
  }
  std::istringstream stream(absl::StrCat(text, "\n", kEnd, "\n"));
  Handler handler(file_name);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(handler)) {
    }
  } catch (const Stop&) {
    // The handler has the error.
  } catch (const YAML::Exception& error) {
    handler.Fail(error.mark, absl::StrCat("is not valid YAML: ", error.msg));
  }
  if (!handler.status().ok()) return handler.status();
  return std::move(handler.root());
}

}  // namespace dcp
