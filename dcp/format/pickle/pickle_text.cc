// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace dcp {
namespace {

constexpr size_t kMaxDecimalDigits = 4300;

void AppendUtf8(uint32_t point, std::string& text) {
  const auto continuation = [&](int shift) {
    text += static_cast<char>(0x80 | ((point >> shift) & 0x3f));
  };
  if (point < 0x80) {
    text += static_cast<char>(point);
  } else if (point < 0x800) {
    text += static_cast<char>(0xc0 | (point >> 6));
    continuation(0);
  } else if (point < 0x10000) {
    text += static_cast<char>(0xe0 | (point >> 12));
    continuation(6);
    continuation(0);
  } else {
    text += static_cast<char>(0xf0 | (point >> 18));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

// The length of the valid sequence at the start of `text`, or 0. `text` is not
// empty and does not begin with ASCII.
size_t SequenceLength(absl::string_view text) {
  const uint8_t lead = static_cast<uint8_t>(text[0]);
  size_t length;
  uint32_t least;
  if (lead >= 0xc2 && lead < 0xe0) {
    length = 2;
    least = 0x80;
  } else if (lead >= 0xe0 && lead < 0xf0) {
    length = 3;
    least = 0x800;
  } else if (lead >= 0xf0 && lead < 0xf5) {
    length = 4;
    least = 0x10000;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  uint32_t point = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    if ((byte & 0xc0) != 0x80) return 0;
    point = (point << 6) | (byte & 0x3fu);
  }
  return point >= least && point <= 0x10ffff ? length : 0;
}

// The value of the `count` hexadecimal digits that begin `text`.
std::optional<uint32_t> HexDigits(absl::string_view text, size_t count) {
  uint32_t value = 0;
  text = text.substr(0, count);
  if (text.size() < count || absl::StartsWith(text, "0x") ||
      !std::all_of(text.begin(), text.end(), absl::ascii_isxdigit) ||
      !absl::SimpleHexAtoi(text, &value)) {
    return std::nullopt;
  }
  return value;
}

// The character that backslash and `letter` represent.
std::optional<char> SimpleEscape(char letter) {
  constexpr absl::string_view kLetters = "\\'\"abfnrtv";
  constexpr absl::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  const size_t i = kLetters.find(letter);
  if (i == absl::string_view::npos) return std::nullopt;
  return kMeanings[i];
}

}  // namespace

bool IsPickleUtf8(absl::string_view text) {
  while (!text.empty()) {
    // Names are nearly always ASCII.
    if (text.size() >= sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, text.data(), sizeof(word));
      if ((word & 0x8080808080808080) == 0) {
        text.remove_prefix(sizeof(word));
        continue;
      }
    }
    size_t length = 1;
    if ((static_cast<uint8_t>(text[0]) & 0x80) != 0) {
      length = SequenceLength(text);
      if (length == 0) return false;
    }
    text.remove_prefix(length);
  }
  return true;
}

bool IsPlainName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
           c == '.';
  });
}

std::optional<std::string> Latin1FromUtf8(absl::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    if (byte < 0x80) {
      bytes += text[i];
      continue;
    }
    if ((byte != 0xc2 && byte != 0xc3) || i + 1 == text.size()) {
      return std::nullopt;
    }
    bytes += static_cast<char>(((byte & 3) << 6) |
                               (static_cast<uint8_t>(text[++i]) & 0x3f));
  }
  return bytes;
}

std::string Utf8FromLatin1(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 2);
  for (char c : bytes) AppendUtf8(static_cast<uint8_t>(c), text);
  return text;
}

absl::string_view ShortestInt(absl::string_view little_endian) {
  const auto byte = [&](size_t i) {
    return static_cast<uint8_t>(little_endian[i]);
  };
  size_t size = little_endian.size();
  while (size > 1 &&
         ((byte(size - 1) == 0 && (byte(size - 2) & 0x80) == 0) ||
          (byte(size - 1) == 0xff && (byte(size - 2) & 0x80) != 0))) {
    --size;
  }
  if (size == 1 && byte(0) == 0) size = 0;
  return little_endian.substr(0, size);
}

std::optional<std::string> ParseDecimalInt(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const bool negative = absl::ConsumePrefix(&text, "-");
  if (!negative) absl::ConsumePrefix(&text, "+");
  if (text.empty() || text.size() > kMaxDecimalDigits) return std::nullopt;
  std::vector<uint32_t> limbs;  // base 2^32, least significant first
  for (const char digit : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(digit))) {
      return std::nullopt;
    }
    uint64_t carry = static_cast<uint64_t>(digit - '0');
    for (uint32_t& limb : limbs) {
      carry += uint64_t{limb} * 10;
      limb = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) limbs.push_back(static_cast<uint32_t>(carry));
  }
  limbs.push_back(0);  // room for the sign
  std::string bytes;
  uint64_t carry = negative ? 1 : 0;
  for (const uint32_t limb : limbs) {
    carry += negative ? ~limb : limb;
    for (int shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>((carry >> shift) & 0xff);
    }
    carry >>= 32;
  }
  bytes.resize(ShortestInt(bytes).size());
  return bytes;
}

std::optional<std::string> ParseQuotedString(absl::string_view text) {
  text = absl::StripTrailingAsciiWhitespace(text);
  if (text.size() < 2 || text.front() != text.back() ||
      (text.front() != '\'' && text.front() != '"')) {
    return std::nullopt;
  }
  text = text.substr(1, text.size() - 2);
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (text[i] == 'x') {
      const std::optional<uint32_t> value = HexDigits(text.substr(i + 1), 2);
      if (!value.has_value()) return std::nullopt;
      bytes += static_cast<char>(*value);
      i += 2;
    } else if (const std::optional<char> c = SimpleEscape(text[i])) {
      bytes += *c;
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

std::optional<std::string> ParseRawUnicode(absl::string_view text) {
  std::string utf8;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size() &&
                        (text[i + 1] == 'u' || text[i + 1] == 'U');
    if (!escape) {
      AppendUtf8(static_cast<uint8_t>(text[i]), utf8);
      continue;
    }
    const size_t num_digits = text[i + 1] == 'u' ? 4 : 8;
    const std::optional<uint32_t> point =
        HexDigits(text.substr(i + 2), num_digits);
    if (!point.has_value() || *point > 0x10ffff) return std::nullopt;
    AppendUtf8(*point, utf8);
    i += 1 + num_digits;
  }
  return utf8;
}

}  // namespace dcp
