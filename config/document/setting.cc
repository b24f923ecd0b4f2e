// SPDX-License-Identifier: Apache-2.0
// Writes a place as text.
//
// Tested by tests/config/document/findings_test.cc.
#include "config/document/setting.h"

#include "absl/strings/str_cat.h"

namespace fsdp {

std::string to_string(const SourceLocation& place) {
  std::string text = place.file;
  if (place.line > 0 && !text.empty()) absl::StrAppend(&text, ":", place.line);
  if (place.key.empty()) return text;
  return absl::StrCat(text, text.empty() ? "" : ": ", place.key);
}

}  // namespace fsdp
