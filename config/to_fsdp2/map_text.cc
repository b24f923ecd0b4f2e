// SPDX-License-Identifier: Apache-2.0
// A map without braces is found by indentation:
//
//   fsdp_config:            <- whole begins here
//     # above the first
//     fsdp_version: 1  # v  <- key: fsdp_version, value: 1; whole: this line
//     names:                <- value: the two lines below
//     - Block
//     - Embedding
//
// A line with as many spaces as the first key begins an entry, one with more
// continues it, and one with fewer ends the map. Comments and empty lines
// between two entries belong to neither.
#include "config/to_fsdp2/map_text.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace fsdp::config {
namespace {

constexpr size_t kNone = absl::string_view::npos;

bool IsQuote(char c) { return c == '"' || c == '\''; }
bool IsBlank(char c) { return c == ' ' || c == '\t'; }
bool IsSpace(char c) { return IsBlank(c) || c == '\n' || c == '\r'; }

size_t LineEnd(absl::string_view text, size_t at) {
  const size_t end = text.find('\n', at);
  return end == kNone ? text.size() : end + 1;
}

// The byte after the quote that ends the string at `at`; kNone if there is
// none.
size_t SkipQuoted(absl::string_view text, size_t at) {
  const char quote = text[at];
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      const bool is_doubled =
          quote == '\'' && i + 1 < text.size() && text[i + 1] == quote;
      if (!is_doubled) return i + 1;
      ++i;
    }
  }
  return kNone;
}

// Skips spaces, line ends and comments between braces.
size_t SkipGap(absl::string_view text, size_t at, bool& has_comments) {
  while (at < text.size()) {
    if (IsSpace(text[at])) {
      ++at;
    } else if (text[at] == '#') {
      has_comments = true;
      at = LineEnd(text, at);
    } else {
      break;
    }
  }
  return at;
}

// The byte after the bracket that ends the list or map at `at`; kNone if there
// is none.
size_t SkipBrackets(absl::string_view text, size_t at, bool& has_comments) {
  size_t depth = 0;
  // whether a scalar starts here, where a quote begins a string
  bool at_start = true;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (at_start && IsQuote(c)) {
      i = SkipQuoted(text, i);
      if (i == kNone) return kNone;
      --i;
      at_start = false;
    } else if (c == '#' && i > 0 && IsSpace(text[i - 1])) {
      has_comments = true;
      i = LineEnd(text, i) - 1;
    } else if (c == '[' || c == '{') {
      ++depth;
      at_start = true;
    } else if (c == ']' || c == '}') {
      if (--depth == 0) return i + 1;
      at_start = false;
    } else if (!IsSpace(c)) {
      at_start = c == ',' || c == ':';
    }
  }
  return kNone;
}

// The end of a plain scalar between braces.
size_t SkipPlain(absl::string_view text, size_t at, bool is_key) {
  size_t end = at;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ',' || c == '}' || c == ']' || c == '{' || c == '[') break;
    if (c == '#' && i > 0 && IsSpace(text[i - 1])) break;
    if (is_key && c == ':') break;
    if (!IsSpace(c)) end = i + 1;
  }
  return end;
}

size_t SkipValue(absl::string_view text, size_t at, bool& has_comments) {
  if (at >= text.size()) return kNone;
  if (IsQuote(text[at])) return SkipQuoted(text, at);
  if (text[at] == '{' || text[at] == '[') {
    return SkipBrackets(text, at, has_comments);
  }
  return SkipPlain(text, at, false);
}

std::optional<MapText> ReadBraces(absl::string_view text, size_t at) {
  MapText map;
  map.in_braces = true;
  for (++at;;) {
    at = SkipGap(text, at, map.has_comments);
    if (at >= text.size()) return std::nullopt;
    if (text[at] == '}') return map;
    EntryText entry;
    entry.key.begin = at;
    entry.key.end =
        IsQuote(text[at]) ? SkipQuoted(text, at) : SkipPlain(text, at, true);
    if (entry.key.end == kNone) return std::nullopt;
    at = SkipGap(text, entry.key.end, map.has_comments);
    if (at >= text.size() || text[at] != ':') return std::nullopt;
    entry.value.begin = SkipGap(text, at + 1, map.has_comments);
    entry.value.end = SkipValue(text, entry.value.begin, map.has_comments);
    if (entry.value.end == kNone) return std::nullopt;
    entry.name = std::string(WithoutQuotes(entry.key.In(text)));
    entry.whole = {entry.key.begin, entry.value.end};
    at = SkipGap(text, entry.value.end, map.has_comments);
    if (at < text.size() && text[at] == ',') ++at;
    map.entries.push_back(std::move(entry));
  }
}

// The layout of one line of a text.
struct Line {
  size_t begin = 0;
  size_t content = 0;  // the first byte that is not a space
  size_t end = 0;      // after the line break
  bool is_empty = true;

  size_t indent() const { return content - begin; }
};

Line LineAt(absl::string_view text, size_t begin) {
  Line line;
  line.begin = begin;
  line.end = LineEnd(text, begin);
  line.content = begin;
  while (line.content < line.end && text[line.content] == ' ') ++line.content;
  size_t first = line.content;
  while (first < line.end && IsSpace(text[first])) ++first;
  line.is_empty = first == line.end || text[first] == '#';
  return line;
}

bool IsItem(absl::string_view text, const Line& line) {
  return text[line.content] == '-' &&
         (line.content + 1 >= text.size() || IsSpace(text[line.content + 1]));
}

bool IsDocumentMark(absl::string_view text, const Line& line) {
  const absl::string_view rest = text.substr(line.begin, 3);
  return rest == "---" || rest == "...";
}

// The end of the line's content, without trailing spaces and the line break.
size_t ContentEnd(absl::string_view text, size_t begin, size_t end) {
  while (end > begin && IsSpace(text[end - 1])) --end;
  return end;
}

// A plain scalar on one line ends before " #".
size_t PlainLineEnd(absl::string_view text, size_t begin, size_t line_end) {
  for (size_t i = begin + 1; i < line_end; ++i) {
    if (text[i] == '#' && IsBlank(text[i - 1])) {
      return ContentEnd(text, begin, i);
    }
  }
  return ContentEnd(text, begin, line_end);
}

// Reads the key; returns the byte after its colon, or kNone if the line has
// none.
size_t ReadKey(absl::string_view text, const Line& line, EntryText& entry) {
  entry.key.begin = line.content;
  size_t at = line.content;
  if (IsQuote(text[at])) {
    at = SkipQuoted(text, at);
    if (at == kNone || at >= line.end) return kNone;
    entry.key.end = at;
    while (at < line.end && IsBlank(text[at])) ++at;
    if (at >= line.end || text[at] != ':') return kNone;
  } else {
    while (at < line.end && !(text[at] == ':' &&
                              (at + 1 >= text.size() || IsSpace(text[at + 1]))))
      ++at;
    if (at >= line.end) return kNone;
    entry.key.end = ContentEnd(text, line.content, at);
  }
  entry.name = std::string(WithoutQuotes(entry.key.In(text)));
  return at + 1;
}

// Reads the entry that begins with this line; the value may end some lines
// below. Returns false if the line does not begin an entry.
bool ReadEntry(absl::string_view text, const Line& line, EntryText& entry) {
  const size_t colon = ReadKey(text, line, entry);
  if (colon == kNone) return false;
  size_t at = colon;
  while (at < line.end && IsSpace(text[at])) ++at;
  entry.whole = {line.begin, line.end};
  if (at >= line.end || text[at] == '#') {
    entry.value = {colon, colon};
    return true;
  }
  entry.value.begin = at;
  bool has_comments = false;
  if (IsQuote(text[at]) || text[at] == '{' || text[at] == '[') {
    entry.value.end = SkipValue(text, at, has_comments);
    if (entry.value.end == kNone) return false;
    entry.whole.end = LineEnd(text, entry.value.end - 1);
  } else {
    entry.value.end = PlainLineEnd(text, at, line.end);
  }
  return true;
}

void ContinueEntry(absl::string_view text, const Line& line, EntryText& entry) {
  if (entry.value.begin == entry.value.end) entry.value.begin = line.begin;
  entry.value.end = ContentEnd(text, line.begin, line.end);
  entry.whole.end = line.end;
}

// Reads the lines from `begin` to `end`.
std::optional<MapText> ReadLines(absl::string_view text, size_t begin,
                                 size_t end) {
  MapText map;
  bool has_indent = false;
  for (size_t at = begin; at < end;) {
    const Line line = LineAt(text, at);
    at = line.end;
    if (line.is_empty) continue;
    if (IsDocumentMark(text, line)) {
      if (map.entries.empty()) continue;
      break;
    }
    // A directive above the document, "%YAML 1.1".
    if (!has_indent && text[line.content] == '%') continue;
    if (!has_indent) map.indent = line.indent();
    has_indent = true;
    if (line.indent() < map.indent) break;
    const bool continues = line.indent() > map.indent || IsItem(text, line);
    if (continues) {
      if (map.entries.empty()) return std::nullopt;
      ContinueEntry(text, line, map.entries.back());
      continue;
    }
    EntryText entry;
    if (!ReadEntry(text, line, entry)) return std::nullopt;
    at = entry.whole.end;
    map.entries.push_back(std::move(entry));
  }
  return map;
}

std::optional<MapText> ReadRoot(absl::string_view text) {
  bool has_comments = false;
  const size_t first = SkipGap(text, 0, has_comments);
  if (first < text.size() && text[first] == '{') return ReadBraces(text, first);
  return ReadLines(text, 0, text.size());
}

}  // namespace

const EntryText* MapText::Find(absl::string_view name) const {
  for (const EntryText& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::optional<MapText> FindMapText(absl::string_view text,
                                   absl::Span<const absl::string_view> path) {
  std::optional<MapText> map = ReadRoot(text);
  for (const absl::string_view name : path) {
    if (!map.has_value()) return std::nullopt;
    const EntryText* entry = map->Find(name);
    if (entry == nullptr) return std::nullopt;
    const TextSpan value = entry->value;
    if (value.begin < text.size() && text[value.begin] == '{') {
      map = ReadBraces(text, value.begin);
    } else if (value.begin > 0 && text[value.begin - 1] == '\n') {
      // The value is on separate lines.
      map = ReadLines(text, value.begin, LineEnd(text, value.end));
    } else {
      return std::nullopt;
    }
  }
  return map;
}

absl::string_view WithoutQuotes(absl::string_view scalar) {
  const bool is_quoted = scalar.size() >= 2 && IsQuote(scalar.front()) &&
                         scalar.back() == scalar.front();
  return is_quoted ? scalar.substr(1, scalar.size() - 2) : scalar;
}

}  // namespace fsdp::config
