// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_request.h"

#include <optional>

#include "absl/strings/ascii.h"

namespace dcp {
namespace {

constexpr absl::string_view kHex = "0123456789ABCDEF";

std::optional<int> HexDigit(char c) {
  const size_t at = kHex.find(absl::ascii_toupper(static_cast<uint8_t>(c)));
  if (at == absl::string_view::npos) return std::nullopt;
  return static_cast<int>(at);
}

}  // namespace

std::string EncodeForUri(absl::string_view text, bool keep_slashes) {
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '_' || c == '.' ||
        c == '~' || (c == '/' && keep_slashes)) {
      encoded.push_back(c);
    } else {
      encoded.push_back('%');
      encoded.push_back(kHex[byte >> 4]);
      encoded.push_back(kHex[byte & 15]);
    }
  }
  return encoded;
}

std::string DecodeFromUri(absl::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const std::optional<int> high = HexDigit(text[i + 1]);
      const std::optional<int> low = HexDigit(text[i + 2]);
      if (high.has_value() && low.has_value()) {
        decoded.push_back(static_cast<char>(*high << 4 | *low));
        i += 2;
        continue;
      }
    }
    // Servers encode a space either way; a plus sign is always encoded.
    decoded.push_back(text[i] == '+' ? ' ' : text[i]);
  }
  return decoded;
}

}  // namespace dcp
