// SPDX-License-Identifier: Apache-2.0
// Parses booleans, numbers and dtypes.
//
// Tested by tests/config/document/section_test.cc.
#include "config/document/scalar.h"

#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace fsdp::config {
namespace {

// Removes underscores between digits; empty if there are others.
std::string WithoutUnderscores(absl::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const bool is_between =
        i > 0 && i + 1 < text.size() &&
        absl::ascii_isdigit(static_cast<unsigned char>(text[i - 1])) &&
        absl::ascii_isdigit(static_cast<unsigned char>(text[i + 1]));
    if (!is_between) return "";
  }
  return digits;
}

// Programs disagree on whether "010" is eight or ten.
bool HasLeadingZero(absl::string_view digits) {
  if (!absl::ConsumePrefix(&digits, "-")) absl::ConsumePrefix(&digits, "+");
  return digits.size() > 1 && digits[0] == '0' &&
         absl::ascii_isdigit(static_cast<unsigned char>(digits[1]));
}

}  // namespace

std::optional<bool> AsBool(const Node& node) {
  if (!node.is_scalar()) return std::nullopt;
  for (const char* word : {"true", "yes", "on", "y", "t", "1"}) {
    if (absl::EqualsIgnoreCase(node.text, word)) return true;
  }
  for (const char* word : {"false", "no", "off", "n", "f", "0"}) {
    if (absl::EqualsIgnoreCase(node.text, word)) return false;
  }
  return std::nullopt;
}

std::optional<int64_t> AsInteger(const Node& node) {
  if (!node.is_scalar() || node.kind == Node::Kind::kBool) return std::nullopt;
  const std::string digits = WithoutUnderscores(node.text);
  if (HasLeadingZero(digits)) return std::nullopt;
  int64_t value = 0;
  if (absl::SimpleAtoi(digits, &value)) return value;
  const std::optional<double> real = AsReal(node);
  // Above this, neighbouring doubles are more than one apart.
  constexpr double kMost = 9007199254740992;
  if (!real.has_value() || !(std::abs(*real) <= kMost) ||
      *real != std::floor(*real)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*real);
}

std::optional<double> AsReal(const Node& node) {
  if (!node.is_scalar() || node.kind == Node::Kind::kBool) return std::nullopt;
  const std::string digits = WithoutUnderscores(node.text);
  // SimpleAtod would accept "infinity", "nan" and numbers in base 16.
  if (digits.find_first_not_of("+-.0123456789eE") != std::string::npos ||
      HasLeadingZero(digits)) {
    return std::nullopt;
  }
  double value = 0;
  if (!absl::SimpleAtod(digits, &value) || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<dcp::DType> DtypeNamed(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  absl::string_view word = lower;
  absl::ConsumePrefix(&word, "torch.");
  if (word == "float32" || word == "fp32" || word == "float") {
    return dcp::DType::kFloat32;
  }
  if (word == "bfloat16" || word == "bf16") return dcp::DType::kBFloat16;
  if (word == "float16" || word == "fp16" || word == "half") {
    return dcp::DType::kFloat16;
  }
  return std::nullopt;
}

}  // namespace fsdp::config
