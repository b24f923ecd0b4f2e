// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/field_checks.h"

#include "proto/utf8.h"

namespace dcp::messages {

std::string Index(absl::string_view field, int i) {
  return absl::StrCat(field, "[", i, "]");
}

absl::Status CheckPattern(absl::string_view pattern, absl::string_view field) {
  if (pattern.find('\0') != absl::string_view::npos) {
    return Invalid(field, " contains a NUL");
  }
  if (pattern.size() > kMaxPatternBytes) {
    return Invalid(field, " has ", pattern.size(), " bytes: at most ",
                   kMaxPatternBytes, " are allowed");
  }
  return absl::OkStatus();
}

std::string Text(absl::string_view text) {
  const std::string utf8 = ToUtf8(text.substr(0, kMaxTextBytes));
  return std::string(Utf8Prefix(utf8, kMaxTextBytes));
}

}  // namespace dcp::messages
