// SPDX-License-Identifier: Apache-2.0
// Text for fields of type `string`: they hold UTF-8 only, and the receiver
// refuses a message with anything else. File names and names in pickles may
// hold any bytes. Pure; any thread.
#ifndef PROTO_UTF8_H_
#define PROTO_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

bool IsUtf8(absl::string_view text);

// `text` with U+FFFD in place of every byte that is not part of a character.
std::string ToUtf8(absl::string_view text);

// The longest beginning of `text`, which must be UTF-8, that has at most
// `max_bytes` and does not cut a character.
absl::string_view Utf8Prefix(absl::string_view text, size_t max_bytes);

}  // namespace dcp

#endif  // PROTO_UTF8_H_
