// SPDX-License-Identifier: Apache-2.0

#include "proto/utf8.h"

#include <algorithm>
#include <cstdint>

namespace dcp {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// The byte count of the first character in `text`; 0 if it is not valid.
// Follows Unicode's table 3-7: no overlong forms, no surrogates.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  if (!std::all_of(text.begin() + 1,
                   text.begin() + static_cast<ptrdiff_t>(length),
                   IsContinuation)) {
    return 0;
  }
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogates
  if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // beyond U+10FFFF
  return length;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = CharacterBytes(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ToUtf8(absl::string_view text) {
  std::string utf8;
  utf8.reserve(text.size());
  while (!text.empty()) {
    const size_t length = CharacterBytes(text);
    const absl::string_view character =
        length > 0 ? text.substr(0, length) : kReplacement;
    utf8.append(character.data(), character.size());
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return utf8;
}

absl::string_view Utf8Prefix(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && IsContinuation(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes);
}

}  // namespace dcp
