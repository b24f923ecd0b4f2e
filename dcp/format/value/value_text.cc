// SPDX-License-Identifier: Apache-2.0
// ToString for a Value: text for people, in the manner of Python's repr().

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/format/value/value.h"

namespace dcp {
using Kind = Value::Kind;

namespace {

// The shortest text that parses to `value`, formatted as in Python: scientific
// notation from 1e16 on and below 1e-4.
std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const double magnitude = std::abs(value);
  const bool scientific =
      magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const std::to_chars_result end = std::to_chars(
      buffer, buffer + sizeof(buffer), value,
      scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(buffer, end.ptr);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

// The decimal digits for a little-endian two's complement integer.
std::string BigIntText(absl::string_view bytes) {
  const bool negative =
      !bytes.empty() && (static_cast<uint8_t>(bytes.back()) & 0x80) != 0;
  // The magnitude as base 2^32 digits, least significant first.
  std::vector<uint32_t> limbs((bytes.size() + 3) / 4, 0);
  for (size_t i = 0; i < limbs.size() * 4; ++i) {
    const uint32_t sign = negative ? 0xff : 0;
    const uint32_t byte =
        i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : sign;
    limbs[i / 4] |= (byte ^ sign) << (8 * (i % 4));
  }
  uint64_t carry = negative ? 1 : 0;
  for (uint32_t& limb : limbs) {
    carry += limb;
    limb = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  if (carry != 0) limbs.push_back(1);
  std::vector<uint32_t> groups;  // base 10^9, least significant first
  while (!limbs.empty()) {
    uint64_t remainder = 0;
    for (size_t i = limbs.size(); i-- > 0;) {
      remainder = (remainder << 32) | limbs[i];
      limbs[i] = static_cast<uint32_t>(remainder / 1'000'000'000);
      remainder %= 1'000'000'000;
    }
    groups.push_back(static_cast<uint32_t>(remainder));
    while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
  }
  std::string text = negative ? "-" : "";
  absl::StrAppend(&text, groups.empty() ? 0 : groups.back());
  for (size_t i = groups.size(); i-- > 1;) {
    absl::StrAppendFormat(&text, "%09d", groups[i - 1]);
  }
  return text;
}

// Appends to a text until it is full. The rest is cut off, so that a huge value
// takes no more time than a small one.
class Renderer {
 public:
  explicit Renderer(size_t max_bytes) : max_bytes_(max_bytes) {}

  void Append(const Value& value);
  std::string Finish();

 private:
  bool full() const { return text_.size() > max_bytes_; }
  void AppendQuoted(const Value& value);
  void AppendValues(absl::Span<const Value> values);
  void AppendItems(absl::Span<const Value> items);
  void AppendCall(const Value& call);

  size_t max_bytes_;
  std::string text_;
};

void Renderer::AppendQuoted(const Value& value) {
  const absl::string_view text =
      value.text().substr(0, max_bytes_ - text_.size());
  if (value.is(Kind::kBytes)) {
    absl::StrAppend(&text_, "b'", absl::CHexEscape(text), "'");
  } else {
    absl::StrAppend(&text_, "'", absl::Utf8SafeCHexEscape(text), "'");
  }
}

void Renderer::AppendValues(absl::Span<const Value> values) {
  absl::string_view separator = "";
  for (const Value& value : values) {
    if (full()) return;
    text_.append(separator.data(), separator.size());
    separator = ", ";
    Append(value);
  }
}

void Renderer::AppendItems(absl::Span<const Value> items) {
  text_ += '{';
  for (size_t i = 0; i + 1 < items.size() && !full(); i += 2) {
    if (i > 0) text_ += ", ";
    Append(items[i]);
    text_ += ": ";
    Append(items[i + 1]);
  }
  text_ += '}';
}

void Renderer::AppendCall(const Value& call) {
  absl::StrAppend(&text_, call.callable().module(), ".", call.callable().name(),
                  "(");
  AppendValues(call.args().items());
  absl::string_view separator = call.args().items().empty() ? "" : ", ";
  if (!call.items().empty()) {
    absl::StrAppend(&text_, separator);
    AppendItems(call.items());
    separator = ", ";
  }
  if (!call.elements().empty()) {
    absl::StrAppend(&text_, separator, "[");
    AppendValues(call.elements());
    text_ += ']';
  }
  text_ += ')';
}

void Renderer::Append(const Value& value) {
  if (full()) return;
  switch (value.kind()) {
    case Kind::kNone:
      text_ += "None";
      return;
    case Kind::kBool:
      text_ += value.bool_value() ? "True" : "False";
      return;
    case Kind::kInt:
      absl::StrAppend(&text_, value.int_value());
      return;
    case Kind::kBigInt:
      text_ += BigIntText(value.text());
      return;
    case Kind::kFloat:
      text_ += FloatText(value.float_value());
      return;
    case Kind::kStr:
    case Kind::kBytes:
      AppendQuoted(value);
      return;
    case Kind::kTuple:
      text_ += '(';
      AppendValues(value.items());
      text_ += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::kList:
      text_ += '[';
      AppendValues(value.items());
      text_ += ']';
      return;
    case Kind::kDict:
      AppendItems(value.items());
      return;
    case Kind::kGlobal:
      absl::StrAppend(&text_, value.module(), ".", value.name());
      return;
    case Kind::kCall:
      AppendCall(value);
      return;
    case Kind::kPersistent:
      text_ += "persistent(";
      Append(value.persistent_id());
      text_ += ')';
      return;
    case Kind::kEnclosing:
    case Kind::kToken:
      text_ += "...";
      return;
  }
}

std::string Renderer::Finish() {
  constexpr absl::string_view kEllipsis = "...";
  if (!full()) return std::move(text_);
  size_t cut = max_bytes_ - std::min(max_bytes_, kEllipsis.size());
  // Do not cut inside a UTF-8 sequence.
  while (cut > 0 && (static_cast<uint8_t>(text_[cut]) & 0xc0) == 0x80) --cut;
  text_.resize(cut);
  absl::StrAppend(&text_, kEllipsis.substr(0, max_bytes_));
  return std::move(text_);
}

}  // namespace

std::string ToString(const Value& value, size_t max_bytes) {
  Renderer renderer(max_bytes);
  renderer.Append(value);
  return renderer.Finish();
}

}  // namespace dcp
