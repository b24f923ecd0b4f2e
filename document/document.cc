// SPDX-License-Identifier: Apache-2.0

#include "document/document.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "document/node_builder.h"

namespace dcp::document {
namespace {

// The length in bytes of the UTF-8 sequence that begins a text; 0 if there is
// none. This is the Unicode standard's table, without overlong forms and
// surrogates.
size_t Utf8Length(absl::string_view text) {
  const auto is_in = [&](size_t i, uint8_t least, uint8_t most) {
    if (i >= text.size()) return false;
    const auto byte = static_cast<uint8_t>(text[i]);
    return byte >= least && byte <= most;
  };
  const auto continues = [&](size_t i) { return is_in(i, 0x80, 0xbf); };
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const uint8_t least = first == 0xe0 ? 0xa0 : 0x80;
    const uint8_t most = first == 0xed ? 0x9f : 0xbf;
    return is_in(1, least, most) && continues(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const uint8_t least = first == 0xf0 ? 0x90 : 0x80;
    const uint8_t most = first == 0xf4 ? 0x8f : 0xbf;
    return is_in(1, least, most) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

bool IsControl(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7f;
}

// Adds a problem unless `text` is UTF-8 without control characters. No syntax
// allows them, and yaml-cpp would take byte 4 for the text's end.
bool CheckCharacters(absl::string_view text, NodeBuilder& builder) {
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8Length(text.substr(i));
    if (length == 0 || IsControl(text[i])) {
      return builder.Fail(
          {.line = line},
          absl::StrCat(length == 0 ? "is not UTF-8" : "has a control character",
                       " at byte ", i));
    }
    if (text[i] == '\n') ++line;
    i += length;
  }
  return true;
}

// Whether a parser may read `text`, from which it takes the byte order mark.
bool TakeMark(absl::string_view& text, NodeBuilder& builder) {
  if (text.size() > kMaxDocumentBytes) {
    return builder.Fail({},
                        absl::StrCat("has ", text.size(), " bytes, more than ",
                                     kMaxDocumentBytes));
  }
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");
  return CheckCharacters(text, builder);
}

}  // namespace

Node Parse(absl::string_view name, absl::string_view text, Syntax syntax,
           std::vector<Problem>& problems) {
  NodeBuilder builder(name, problems);
  if (!TakeMark(text, builder)) return std::move(builder).BuildMap();
  switch (syntax) {
    case Syntax::kYaml:
      ReadYaml(text, builder);
      break;
    case Syntax::kJson:
      ReadJson(text, builder);
      break;
    case Syntax::kToml:
      ReadToml(text, builder);
      break;
  }
  return std::move(builder).BuildMap();
}

absl::StatusOr<Node> ParseStrictYaml(absl::string_view name,
                                     absl::string_view text,
                                     const StrictLimits& limits) {
  std::vector<Problem> problems;
  NodeBuilder builder(name, problems, &limits);
  if (TakeMark(text, builder)) ReadYaml(text, builder);
  if (problems.empty()) return std::move(builder.root());
  const auto& [place, what] = problems.front();
  return absl::InvalidArgumentError(absl::StrCat(
      name, place.line > 0 ? absl::StrCat(":", place.line) : "",
      place.column > 0 ? absl::StrCat(":", place.column) : "", ": ", what));
}

}  // namespace dcp::document
