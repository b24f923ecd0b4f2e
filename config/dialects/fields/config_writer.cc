// SPDX-License-Identifier: Apache-2.0

#include "config/dialects/fields/config_writer.h"

#include <array>
#include <charconv>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fsdp::config {

std::string QuotedText(absl::string_view text) {
  constexpr absl::string_view kHexDigits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&quoted, "\\u00", kHexDigits.substr(byte >> 4, 1),
                      kHexDigits.substr(byte & 15, 1));
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  return quoted;
}

std::string RealText(double value) {
  std::array<char, 32> buffer{};  // a double's shortest text has at most 24
  const std::to_chars_result result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), result.ptr);
  if (text.find('.') != std::string::npos) return text;
  const size_t exponent = text.find('e');
  text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
  return text;
}

void ImplicitDefaults::Say(absl::string_view program,
                           Findings& findings) const {
  if (values_.empty()) return;
  findings.Changed(
      SourceLocation{.key = "loop"},
      absl::StrCat("does not set these, so the defaults of ", program,
                   " apply: ", absl::StrJoin(values_, ", ")));
}

}  // namespace fsdp::config
