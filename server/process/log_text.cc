// SPDX-License-Identifier: Apache-2.0

#include "server/process/log_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace dcp::server {

bool IsJsonNumber(absl::string_view text) {
  const auto take_digits = [&text] {
    const size_t before = text.size();
    while (!text.empty() && absl::ascii_isdigit(text[0])) text.remove_prefix(1);
    return text.size() < before;
  };
  absl::ConsumePrefix(&text, "-");
  if (!absl::ConsumePrefix(&text, "0") && !take_digits()) return false;
  if (absl::ConsumePrefix(&text, ".") && !take_digits()) return false;
  return text.empty();
}

std::string LogText(absl::string_view text) {
  const bool is_cut = text.size() > kMaxLogTextBytes;
  const absl::string_view shown = text.substr(0, kMaxLogTextBytes);
  const bool is_plain =
      !shown.empty() && std::all_of(shown.begin(), shown.end(), [](char c) {
        return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '"' &&
               c != '\\' && c != '=';
      });
  // In JSON, a name that looks like a number stays a string.
  const char* const rest = is_cut ? "..." : "";
  if (is_plain && !IsJsonNumber(shown)) return absl::StrCat(shown, rest);
  return absl::StrCat("\"", absl::CEscape(shown), rest, "\"");
}

}  // namespace dcp::server
