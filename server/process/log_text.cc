#include "server/process/log_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace dcp::server {

std::string LogText(absl::string_view text) {
  const bool is_cut = text.size() > kMaxLogTextBytes;
  const absl::string_view shown = text.substr(0, kMaxLogTextBytes);
  const bool is_plain =
      !shown.empty() && std::all_of(shown.begin(), shown.end(), [](char c) {
        return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '"' &&
               c != '\\' && c != '=';
      });
  const char* const rest = is_cut ? "..." : "";
  if (is_plain) return absl::StrCat(shown, rest);
  return absl::StrCat("\"", absl::CEscape(shown), rest, "\"");
}

}  // namespace dcp::server
