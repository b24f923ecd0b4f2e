// SPDX-License-Identifier: Apache-2.0

#include "config/document/document.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/document/node_builder.h"

namespace fsdp::config {
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
bool CheckCharacters(absl::string_view name, absl::string_view text,
                     Findings& findings) {
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8Length(text.substr(i));
    if (length == 0 || IsControl(text[i])) {
      SourceLocation place;
      place.file = std::string(name);
      place.line = line;
      findings.Problem(
          std::move(place),
          absl::StrCat(length == 0 ? "is not UTF-8" : "has a control character",
                       " at byte ", i));
      return false;
    }
    if (text[i] == '\n') ++line;
    i += length;
  }
  return true;
}

}  // namespace

Node ParseDocument(absl::string_view name, absl::string_view text,
                   Syntax syntax, Findings& findings) {
  NodeBuilder empty(name, findings);
  if (text.size() > kMaxDocumentBytes) {
    empty.Fail({}, absl::StrCat("has ", text.size(), " bytes, more than ",
                                kMaxDocumentBytes));
    return std::move(empty).Build();
  }
  if (absl::StartsWith(text, "\xef\xbb\xbf")) text.remove_prefix(3);
  if (!CheckCharacters(name, text, findings)) return std::move(empty).Build();
  switch (syntax) {
    case Syntax::kYaml:
      return ParseYaml(name, text, findings);
    case Syntax::kJson:
      return ParseJson(name, text, findings);
    case Syntax::kToml:
      return ParseToml(name, text, findings);
  }
  return std::move(empty).Build();
}

}  // namespace fsdp::config
