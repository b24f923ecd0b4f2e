// SPDX-License-Identifier: Apache-2.0
// Finds the JSON in a log and removes the ranks' prefixes.
//
// Tested by tests/config/dialects/torchtitan/read_test.cc.
#include "config/document/printed_config.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace fsdp::config {
namespace {

constexpr absl::string_view kMark = "Running with configs: {";

// "[rank0]:" at the beginning of a line; empty if there is none.
absl::string_view RankPrefix(absl::string_view line) {
  constexpr absl::string_view kBegin = "[rank";
  const size_t end = line.find("]:");
  if (line.substr(0, kBegin.size()) != kBegin ||
      end == absl::string_view::npos) {
    return "";
  }
  return line.substr(0, end + 2);
}

// Bytes up to the brace that closes the first one; all if none does.
size_t ObjectBytes(absl::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        in_string = false;
    } else if (text[i] == '"') {
      in_string = true;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return text.size();
}

}  // namespace

std::string ExtractPrintedConfig(absl::string_view text) {
  const size_t mark = text.find(kMark);
  if (mark == absl::string_view::npos) return "";
  const size_t begin = mark + kMark.size() - 1;
  const size_t line_begin = text.rfind('\n', mark) + 1;  // 0 for the first line
  const absl::string_view rank = RankPrefix(text.substr(line_begin));
  std::vector<absl::string_view> lines =
      absl::StrSplit(text.substr(begin), '\n');
  for (size_t i = 1; i < lines.size() && !rank.empty(); ++i) {
    if (lines[i].substr(0, rank.size()) == rank) {
      lines[i].remove_prefix(rank.size());
    }
  }
  const std::string rest = absl::StrJoin(lines, "\n");
  const absl::string_view before = text.substr(0, begin);
  const auto num_lines = std::count(before.begin(), before.end(), '\n');
  return absl::StrCat(std::string(static_cast<size_t>(num_lines), '\n'),
                      absl::string_view(rest).substr(0, ObjectBytes(rest)));
}

}  // namespace fsdp::config
