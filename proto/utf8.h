// Text for fields of type `string`: they hold UTF-8 only, and a message with
// anything else is refused by its receiver. File names and names in pickles may
// be anything. Pure; any thread.
#ifndef PROTO_UTF8_H_
#define PROTO_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

bool IsUtf8(absl::string_view text);

// `text` with U+FFFD for every byte that is not part of a character.
std::string ToUtf8(absl::string_view text);

// The longest beginning of `text`, which is UTF-8, of at most `max_bytes` that
// cuts no character.
absl::string_view Utf8Prefix(absl::string_view text, size_t max_bytes);

}  // namespace dcp

#endif  // PROTO_UTF8_H_
