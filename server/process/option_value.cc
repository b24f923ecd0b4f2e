// SPDX-License-Identifier: Apache-2.0

#include "server/process/option_value.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/bytes.h"
#include "dcp/options/unit.h"

namespace dcp::server {
namespace {

constexpr std::array<Unit, 5> kTimeUnits = {{
    {"d", 24 * 60 * 60},
    {"h", 60 * 60},
    {"min", 60},
    {"m", 60},
    {"s", 1},
}};

// A longer time is a mistake. Arithmetic with it must not overflow.
constexpr uint64_t kMaxSeconds = uint64_t{10} * 365 * 24 * 60 * 60;

// The limit of the kernel's sockaddr_un, which ends with a zero byte.
constexpr size_t kMaxUnixPathBytes = 107;

// Parses a number with a unit; nullopt if it is malformed or exceeds 64 bits.
std::optional<uint64_t> ParseQuantity(absl::string_view text,
                                      absl::Span<const Unit> units) {
  text = absl::StripAsciiWhitespace(text);
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  uint64_t number;
  if (!absl::SimpleAtoi(text.substr(0, digits), &number)) return std::nullopt;
  const absl::string_view name =
      absl::StripLeadingAsciiWhitespace(text.substr(digits));
  const std::optional<uint64_t> factor = UnitFactor(name, units);
  return factor.has_value() ? CheckedMul(number, *factor) : std::nullopt;
}

// In the first of the units that divides it.
std::string FormatQuantity(uint64_t number, absl::Span<const Unit> units) {
  for (const Unit& unit : units) {
    if (number != 0 && number % unit.factor == 0) {
      return absl::StrCat(number / unit.factor, " ", unit.name);
    }
  }
  return absl::StrCat(number);
}

// The host of "host:port", without brackets; nullopt if there is no port.
std::optional<absl::string_view> HostPart(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  uint32_t port;
  const absl::string_view digits = address.substr(colon + 1);
  if (!absl::SimpleAtoi(digits, &port) || port > 65535 || digits[0] == '+') {
    return std::nullopt;
  }
  absl::string_view host = address.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) return std::nullopt;
  } else if (host.find(':') != absl::string_view::npos) {
    return std::nullopt;
  }
  return host;
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  const std::optional<uint64_t> bytes = ParseQuantity(text, ByteUnits());
  if (bytes.has_value()) return *bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a size such as 512MiB, 2GiB or 4096"));
}

absl::StatusOr<absl::Duration> ParseTime(absl::string_view text) {
  const std::optional<uint64_t> seconds = ParseQuantity(text, kTimeUnits);
  if (seconds.has_value() && *seconds <= kMaxSeconds) {
    return absl::Seconds(*seconds);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is not a time such as 30s, 10min, 2h or 7d, up to 3650d"));
}

absl::StatusOr<int64_t> ParseCount(absl::string_view text, int64_t min,
                                   int64_t max) {
  int64_t count;
  if (absl::SimpleAtoi(text, &count) && count >= min && count <= max) {
    return count;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a number from ", min, " to ", max));
}

absl::StatusOr<bool> ParseBool(absl::string_view text) {
  for (absl::string_view word : {"true", "yes", "on", "1"}) {
    if (absl::EqualsIgnoreCase(text, word)) return true;
  }
  for (absl::string_view word : {"false", "no", "off", "0"}) {
    if (absl::EqualsIgnoreCase(text, word)) return false;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is neither true nor false"));
}

absl::StatusOr<std::string> ParseAddress(absl::string_view text, bool unix) {
  if (unix && absl::StartsWith(text, "unix:/")) {
    if (text.size() - strlen("unix:") <= kMaxUnixPathBytes) {
      return std::string(text);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' has a path of more than ", kMaxUnixPathBytes, " bytes"));
  }
  const std::optional<absl::string_view> host = HostPart(text);
  if (host.has_value() && !host->empty() && !absl::StartsWith(text, "unix:")) {
    return std::string(text);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is not an address such as 127.0.0.1:7420, [::]:7420",
      unix ? " or unix:/run/dcp-server.sock" : ""));
}

bool IsLoopback(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const absl::string_view host = HostPart(address).value_or("");
  if (host == "::1" || absl::EqualsIgnoreCase(host, "localhost")) return true;
  // Digits only: a name such as 127.0.0.1.example.com is another machine's.
  return absl::StartsWith(host, "127.") &&
         std::all_of(host.begin(), host.end(),
                     [](char c) { return absl::ascii_isdigit(c) || c == '.'; });
}

std::string FormatBytes(uint64_t bytes) {
  return bytes == 0 ? "0 B" : FormatQuantity(bytes, ByteUnits());
}

std::string FormatTime(absl::Duration duration) {
  const auto seconds = static_cast<uint64_t>(
      std::max<int64_t>(absl::ToInt64Seconds(duration), 0));
  return seconds == 0 ? "0 s" : FormatQuantity(seconds, kTimeUnits);
}

}  // namespace dcp::server
