// SPDX-License-Identifier: Apache-2.0

#include "config/document/python_dict.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fsdp::config {
namespace {

bool IsIdentifier(absl::string_view word) {
  if (word.empty()) return false;
  for (const char c : word) {
    if (c != '_' && !absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      return false;
    }
  }
  return true;
}

// Replaces the text between name and value, in `name = value` and `name: dict =
// value`, by a colon.
std::string WithColon(absl::string_view line) {
  const size_t equals = line.find('=');
  if (equals == absl::string_view::npos) return std::string(line);
  absl::string_view name = line.substr(0, equals);
  name = name.substr(0, name.find(':'));
  const size_t name_bytes = absl::StripTrailingAsciiWhitespace(name).size();
  if (!IsIdentifier(line.substr(0, name_bytes))) return std::string(line);
  return absl::StrCat(
      line.substr(0, name_bytes), ":",
      std::string(std::max<size_t>(equals - name_bytes, 1), ' '),
      line.substr(equals + 1));
}

}  // namespace

std::string PythonDictAsYaml(absl::string_view text) {
  std::string yaml;
  bool is_first = true;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!is_first) yaml += '\n';
    is_first = false;
    if (absl::StartsWith(line, "import ") || absl::StartsWith(line, "from ")) {
      yaml += '#';
    } else {
      yaml += WithColon(line);
    }
  }
  return yaml;
}

}  // namespace fsdp::config
