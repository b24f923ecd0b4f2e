// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/uuid.h"

#include "absl/strings/ascii.h"

namespace dcp::server {

bool IsUuid(absl::string_view text) {
  if (text.size() != kUuidBytes) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool fits =
        is_dash ? text[i] == '-'
                : absl::ascii_isxdigit(static_cast<unsigned char>(text[i]));
    if (!fits) return false;
  }
  return true;
}

bool IsNilUuid(absl::string_view text) {
  return text == "00000000-0000-0000-0000-000000000000";
}

}  // namespace dcp::server
