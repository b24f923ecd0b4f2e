// SPDX-License-Identifier: Apache-2.0
// Shared by the conversions in this folder: errors that name a request field,
// and text that fits into a message. Pure; any thread.
#ifndef PROTO_MESSAGES_FIELD_CHECKS_H_
#define PROTO_MESSAGES_FIELD_CHECKS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/error_detail.h"

namespace dcp::messages {

// Bytes in a finding's text, or in a value: enough for a person.
inline constexpr size_t kMaxTextBytes = 1000;
// Bytes in a pattern: people write them, and this is enough.
inline constexpr size_t kMaxPatternBytes = 1024;

// InvalidArgument for `field`, such as "mesh.axes[1].size". The message is that
// name followed by the parts, such as " is 0: must be 1 or more".
template <typename... Parts>
absl::Status Invalid(absl::string_view field, const Parts&... parts) {
  return InvalidField(field, absl::StrCat(parts...));
}

// "field[i]".
std::string Index(absl::string_view field, int i);

// InvalidArgument for a pattern that is too long or contains a NUL.
absl::Status CheckPattern(absl::string_view pattern, absl::string_view field);

// The beginning of `text` as UTF-8, at most kMaxTextBytes.
std::string Text(absl::string_view text);

}  // namespace dcp::messages

#endif  // PROTO_MESSAGES_FIELD_CHECKS_H_
