// SPDX-License-Identifier: Apache-2.0

#include "config/to_fsdp2/map_edit.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/check.h"

namespace fsdp::config {
namespace {

// The characters that end the text's lines.
absl::string_view LineBreak(absl::string_view text) {
  return absl::StrContains(text, "\r\n") ? "\r\n" : "\n";
}

bool HasComment(absl::string_view lines) {
  for (size_t i = 1; i < lines.size(); ++i) {
    const char before = lines[i - 1];
    if (lines[i] == '#' &&
        (before == ' ' || before == '\t' || before == '\n')) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string ApplyEdits(absl::string_view text, std::vector<TextEdit> edits) {
  std::stable_sort(edits.begin(), edits.end(),
                   [](const TextEdit& a, const TextEdit& b) {
                     // An insertion comes before a replacement at the same
                     // place.
                     return std::pair(a.span.begin, a.span.end) <
                            std::pair(b.span.begin, b.span.end);
                   });
  std::string result;
  size_t done = 0;
  for (const TextEdit& edit : edits) {
    DCP_CHECK(edit.span.begin >= done, "edits overlap at byte ", done);
    absl::StrAppend(&result, text.substr(done, edit.span.begin - done),
                    edit.text);
    done = edit.span.end;
  }
  absl::StrAppend(&result, text.substr(done));
  return result;
}

MapEdit::MapEdit(absl::string_view text, MapText map)
    : text_(text), map_(std::move(map)), removed_(map_.entries.size(), false) {}

std::string MapEdit::KeyLike(absl::string_view old_key,
                             absl::string_view name) const {
  const absl::string_view plain = WithoutQuotes(old_key);
  if (plain.size() == old_key.size()) return std::string(name);
  return absl::StrCat(old_key.substr(0, 1), name, old_key.substr(0, 1));
}

void MapEdit::Rename(size_t entry, absl::string_view name) {
  const TextSpan key = map_.entries[entry].key;
  changes_.push_back({key, KeyLike(key.In(text_), name)});
}

void MapEdit::SetValue(size_t entry, absl::string_view value) {
  const TextSpan span = map_.entries[entry].value;
  const bool is_missing = span.begin == span.end;
  changes_.push_back({span, absl::StrCat(is_missing ? " " : "", value)});
}

void MapEdit::Remove(size_t entry) { removed_[entry] = true; }

void MapEdit::Append(absl::string_view name, absl::string_view value) {
  appended_.emplace_back(name, value);
}

std::string MapEdit::RemovedLines(const EntryText& entry) const {
  absl::string_view lines = entry.whole.In(text_);
  if (!HasComment(lines)) return "";
  std::string commented;
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    const size_t length =
        end == absl::string_view::npos ? lines.size() : end + 1;
    absl::string_view line = lines.substr(0, length);
    const std::string indent(map_.indent, ' ');
    absl::ConsumePrefix(&line, indent);
    absl::StrAppend(&commented, indent, "# ", line);
    lines.remove_prefix(length);
  }
  return commented;
}

void MapEdit::RemoveLines(std::vector<TextEdit>& edits) const {
  for (size_t i = 0; i < map_.entries.size(); ++i) {
    if (!removed_[i]) continue;
    edits.push_back({map_.entries[i].whole, RemovedLines(map_.entries[i])});
  }
}

// Removes the comma before or after as well: a run of removed entries ends
// where the next remaining entry begins, or begins where the last remaining
// entry ends.
void MapEdit::RemoveInBraces(std::vector<TextEdit>& edits) const {
  const std::vector<EntryText>& entries = map_.entries;
  for (size_t i = 0; i < entries.size();) {
    if (!removed_[i]) {
      ++i;
      continue;
    }
    size_t next = i;
    while (next < entries.size() && removed_[next]) ++next;
    if (next < entries.size()) {
      edits.push_back(
          {{entries[i].whole.begin, entries[next].whole.begin}, ""});
    } else if (i > 0) {
      edits.push_back(
          {{entries[i - 1].whole.end, entries[next - 1].whole.end}, ""});
    } else {
      edits.push_back(
          {{entries[i].whole.begin, entries[next - 1].whole.end}, ""});
    }
    i = next;
  }
}

// The text between two entries in braces, after the comma: a space, or a new
// line with the entry's indentation.
std::string MapEdit::GapBefore(const EntryText& entry) const {
  const size_t begin = entry.whole.begin;
  const size_t line = text_.rfind('\n', begin);
  if (line == absl::string_view::npos) return " ";
  const absl::string_view indent = text_.substr(line + 1, begin - line - 1);
  const bool has_own_line =
      indent.find_first_not_of(" \t") == absl::string_view::npos;
  return has_own_line ? absl::StrCat(LineBreak(text_), indent) : " ";
}

TextEdit MapEdit::InsertionInBraces(const EntryText& entry,
                                    bool is_after) const {
  const size_t at = is_after ? entry.whole.end : entry.whole.begin;
  TextEdit edit = {{at, at}, ""};
  const std::string gap = GapBefore(entry);
  for (const auto& [name, value] : appended_) {
    if (is_after || !edit.text.empty()) absl::StrAppend(&edit.text, ",", gap);
    absl::StrAppend(&edit.text, KeyLike(entry.key.In(text_), name), ": ",
                    value);
  }
  return edit;
}

TextEdit MapEdit::Insertion() const {
  size_t last = map_.entries.size();
  while (last > 0 && removed_[last - 1]) --last;
  const EntryText& after = map_.entries[last > 0 ? last - 1 : 0];
  // If no entry stays, the new ones are put before the removed ones.
  if (map_.in_braces) return InsertionInBraces(after, last > 0);
  TextEdit edit = {{after.whole.end, after.whole.end}, ""};
  const absl::string_view line_break = LineBreak(text_);
  const bool is_open = !absl::EndsWith(after.whole.In(text_), "\n");
  for (const auto& [name, value] : appended_) {
    if (is_open) absl::StrAppend(&edit.text, line_break);
    absl::StrAppend(&edit.text, std::string(map_.indent, ' '), name, ": ",
                    value);
    if (!is_open) absl::StrAppend(&edit.text, line_break);
  }
  return edit;
}

std::vector<TextEdit> MapEdit::Edits() const {
  std::vector<TextEdit> edits = changes_;
  if (map_.in_braces) {
    RemoveInBraces(edits);
  } else {
    RemoveLines(edits);
  }
  if (!appended_.empty() && !map_.entries.empty()) edits.push_back(Insertion());
  return edits;
}

}  // namespace fsdp::config
