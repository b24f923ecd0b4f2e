// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/json/json.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/limits.h"

namespace dcp {
namespace {

using EventKind = JsonEvent::Kind;

// The callbacks for nlohmann's parser; false ends the parse. The parser reports
// errors by calling parse_error and throws nothing.
class SaxHandler {
 public:
  explicit SaxHandler(absl::FunctionRef<absl::Status(const JsonEvent&)> handle)
      : handle_(handle) {}

  absl::Status status() && { return std::move(status_); }

  // The library defines the names.
  bool null() { return Report(EventKind::kNull); }
  bool boolean(bool value) {
    return Report(EventKind::kBool, {}, value ? 1 : 0);
  }
  bool number_integer(int64_t value) {
    return Report(EventKind::kOtherNumber, absl::StrCat(value));
  }
  bool number_unsigned(uint64_t value) {
    return Report(EventKind::kUnsigned, {}, value);
  }
  bool number_float(double, const std::string& text) {
    return Report(EventKind::kOtherNumber, text);
  }
  bool string(const std::string& text) {
    return Report(EventKind::kString, text);
  }
  bool key(const std::string& text) { return Report(EventKind::kKey, text); }
  bool binary(const std::vector<uint8_t>&) { return false; }
  bool start_object(size_t) { return Open(EventKind::kBeginObject); }
  bool end_object() { return Close(EventKind::kEndObject); }
  bool start_array(size_t) { return Open(EventKind::kBeginArray); }
  bool end_array() { return Close(EventKind::kEndArray); }

  template <typename Exception>
  bool parse_error(size_t position, const std::string&, const Exception&) {
    status_ =
        absl::DataLossError(absl::StrCat("not valid JSON at byte ", position));
    return false;
  }

 private:
  bool Report(EventKind kind, absl::string_view text = {},
              uint64_t number = 0) {
    status_ = handle_(JsonEvent{
        .kind = kind, .depth = depth_, .text = text, .number = number});
    return status_.ok();
  }

  bool Open(EventKind kind) {
    if (!Report(kind)) return false;
    if (++depth_ <= kMaxJsonDepth) return true;
    status_ = absl::DataLossError(
        absl::StrCat("JSON is nested deeper than ", kMaxJsonDepth));
    return false;
  }

  bool Close(EventKind kind) {
    --depth_;
    return Report(kind);
  }

  absl::FunctionRef<absl::Status(const JsonEvent&)> handle_;
  absl::Status status_;
  uint32_t depth_ = 0;
};

absl::Status NulAt(uint64_t position) {
  return absl::DataLossError(absl::StrCat("not valid JSON at byte ", position));
}

// A text that is read in blocks.
class BlockText {
 public:
  BlockText(uint64_t length, ReadAt read) : length_(length), read_(read) {}

  // The next character, which stays until it is taken; nullptr at the end, and
  // after an error.
  const char* Peek() {
    if (at_ == block_.size() && !Fill()) return nullptr;
    return reinterpret_cast<const char*>(block_.data() + at_);
  }
  void Take() { ++at_; }

  // Why the text ended early.
  const absl::Status& status() const { return status_; }

 private:
  static constexpr uint64_t kBlock = uint64_t{256} << 10;

  bool Fill() {
    begin_ += block_.size();
    block_ = {};
    at_ = 0;
    if (begin_ == length_ || !status_.ok()) return false;
    const absl::StatusOr<ByteSpan> block =
        read_(begin_, std::min(kBlock, length_ - begin_));
    if (!block.ok()) {
      status_ = block.status();
      return false;
    }
    // The parser would mistake a NUL for the end of input.
    const auto nul = std::find(block->begin(), block->end(), uint8_t{0});
    if (nul != block->end()) {
      status_ = NulAt(begin_ + static_cast<uint64_t>(nul - block->begin()));
      return false;
    }
    block_ = *block;
    return true;
  }

  const uint64_t length_;
  const ReadAt read_;
  uint64_t begin_ = 0;  // where the block begins
  ByteSpan block_;
  size_t at_ = 0;  // in the block
  absl::Status status_;
};

// A BlockText in the form that the parser requires; null marks the end.
class BlockTextIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit BlockTextIterator(BlockText* text) : text_(text) {}

  reference operator*() const { return *text_->Peek(); }
  BlockTextIterator& operator++() {
    text_->Take();
    return *this;
  }
  BlockTextIterator operator++(int) {
    text_->Take();
    return *this;
  }
  friend bool operator==(const BlockTextIterator& a,
                         const BlockTextIterator& b) {
    return a.AtEnd() == b.AtEnd();
  }

 private:
  bool AtEnd() const { return text_ == nullptr || text_->Peek() == nullptr; }

  BlockText* text_;  // or null
};

// The length in bytes of the UTF-8 sequence at the start of `text`; 0 if there
// is none. Follows the Unicode standard's table: no overlong forms, no
// surrogates, no code points above U+10FFFF.
size_t Utf8Length(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = first == 0xed && byte(1) >= 0xa0;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool overlong = first == 0xf0 && byte(1) < 0x90;
    const bool too_large = first == 0xf4 && byte(1) >= 0x90;
    return continues(1) && continues(2) && continues(3) && !overlong &&
                   !too_large
               ? 4
               : 0;
  }
  return 0;
}

void AppendEscaped(char c, std::string& out) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (static_cast<uint8_t>(c) < 0x20 || c == '\x7f') {
    absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint8_t>(c));
  } else {
    out += c;
  }
}

}  // namespace

absl::Status ParseJson(
    absl::string_view text,
    absl::FunctionRef<absl::Status(const JsonEvent&)> handle) {
  // The parser would mistake a NUL for the end of input.
  const size_t nul = text.find('\0');
  if (nul != absl::string_view::npos) return NulAt(nul);
  SaxHandler handler(handle);
  nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &handler);
  return std::move(handler).status();
}

absl::Status ParseJson(
    uint64_t length, ReadAt read,
    absl::FunctionRef<absl::Status(const JsonEvent&)> handle) {
  BlockText text(length, read);
  SaxHandler handler(handle);
  nlohmann::json::sax_parse(BlockTextIterator(&text),
                            BlockTextIterator(nullptr), &handler);
  if (!text.status().ok()) return text.status();
  return std::move(handler).status();
}

std::string QuoteJson(absl::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  out += '"';
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 1) {
      AppendEscaped(text[0], out);
    } else if (length == 0) {
      out += "\xef\xbf\xbd";
    } else {
      out.append(text.data(), length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
  return out;
}

}  // namespace dcp
