// SPDX-License-Identifier: Apache-2.0

#include "tools/terminal/quantity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/bytes.h"
#include "dcp/options/unit.h"

namespace dcp::tools {
namespace {

// Accepts digits with at most one point, then the unit.
struct SplitSize {
  absl::string_view whole;
  absl::string_view fraction;
  absl::string_view unit;
};

SplitSize Split(absl::string_view text) {
  SplitSize split;
  size_t end = 0;
  while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
  split.whole = text.substr(0, end);
  if (end < text.size() && text[end] == '.') {
    const size_t begin = ++end;
    while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
    split.fraction = text.substr(begin, end - begin);
  }
  split.unit = absl::StripAsciiWhitespace(text.substr(end));
  return split;
}

// The whole bytes in "0.<digits>" of `unit`. Digits after the ninth are
// dropped: they are less than a billionth of the unit.
uint64_t FractionBytes(absl::string_view digits, uint64_t unit) {
  uint64_t numerator = 0;
  uint64_t denominator = 1;
  for (char digit : digits.substr(0, 9)) {
    numerator = numerator * 10 + static_cast<uint64_t>(digit - '0');
    denominator *= 10;
  }
  // 10^9 times the largest unit, 2^40, does not fit into 64 bits.
  const auto product = static_cast<unsigned __int128>(numerator) * unit;
  return static_cast<uint64_t>(product / denominator);
}

}  // namespace

absl::StatusOr<uint64_t> ParseSize(absl::string_view text) {
  const SplitSize split = Split(absl::StripAsciiWhitespace(text));
  const std::optional<uint64_t> unit = UnitFactor(split.unit, ByteUnits());
  uint64_t whole = 0;
  const bool is_number =
      !split.whole.empty() && absl::SimpleAtoi(split.whole, &whole);
  if (!is_number || !unit.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "size '", text, "' is not a number with a unit such as 256MiB or 5GB"));
  }
  const std::optional<uint64_t> product = CheckedMul(whole, *unit);
  const std::optional<uint64_t> sum =
      product ? CheckedAdd(*product, FractionBytes(split.fraction, *unit))
              : std::nullopt;
  if (!sum.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("size '", text, "' exceeds 16 EiB"));
  }
  return *sum;
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  constexpr std::array<absl::string_view, 6> kNames = {"kB", "MB", "GB",
                                                       "TB", "PB", "EB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes) / 1000;
  // 999.5 would round to "1000".
  while (value >= 999.5 && unit + 1 < kNames.size()) {
    value /= 1000;
    ++unit;
  }
  int digits = 0;
  if (value < 99.95) digits = 1;
  if (value < 9.995) digits = 2;
  return absl::StrFormat("%.*f %s", digits, value, kNames[unit]);
}

std::string FormatMemory(uint64_t bytes) {
  const uint64_t mebibyte = uint64_t{1} << 20;
  const uint64_t remainder = bytes % mebibyte;
  return absl::StrCat(bytes / mebibyte + (remainder == 0 ? 0 : 1), " MiB");
}

std::string FormatCount(uint64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string FormatPlural(uint64_t count, absl::string_view noun) {
  return absl::StrCat(FormatCount(count), " ", noun, count == 1 ? "" : "s");
}

std::string FormatSeconds(double seconds) {
  if (seconds < 9.995) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 59.95) return absl::StrFormat("%.1f s", seconds);
  // Longer than a thousand years only means "very long".
  const uint64_t whole =
      static_cast<uint64_t>(std::llround(std::min(seconds, 3.2e10)));
  const uint64_t hours = whole / 3600;
  const uint64_t minutes = whole / 60 % 60;
  if (hours == 0) return absl::StrFormat("%d:%02d", minutes, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", hours, minutes, whole % 60);
}

}  // namespace dcp::tools
