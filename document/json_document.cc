// SPDX-License-Identifier: Apache-2.0
// Finds places in JSON. nlohmann's parser calls back right after it has read a
// token, and a counting iterator says where that token ended. The token began
// at the first byte after the previous token that is not a space, comma or
// colon. After a number the parser has read one more byte; it is one of those,
// or a bracket, which has another call.
//
// Tested by tests/document/document_test.cc.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "document/node_builder.h"

namespace dcp::document {
namespace {

class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* num_read)
      : at_(at), num_read_(num_read) {}

  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*num_read_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_;
  size_t* num_read_;  // never null
};

// Has the functions that nlohmann's parser calls, under the library's names.
// One that returns false ends the parse.
class SaxHandler {
 public:
  using Kind = Node::Kind;

  SaxHandler(absl::string_view text, const size_t& num_read,
             NodeBuilder& builder)
      : text_(text), num_read_(&num_read), builder_(&builder) {}

  bool null() { return Scalar(Kind::kNull, "null"); }
  bool boolean(bool value) {
    return Scalar(Kind::kBool, value ? "true" : "false");
  }
  bool number_integer(int64_t) { return Number(Kind::kInteger); }
  bool number_unsigned(uint64_t) { return Number(Kind::kInteger); }
  bool number_float(double, const std::string&) { return Number(Kind::kReal); }
  bool string(const std::string& text) { return Scalar(Kind::kString, text); }
  bool key(const std::string& text) {
    return builder_->Key(text, NextPosition());
  }
  bool binary(const std::vector<uint8_t>&) { return false; }
  bool start_object(size_t) {
    return builder_->Begin(Kind::kMap, NextPosition());
  }
  bool end_object() { return End(); }
  bool start_array(size_t) {
    return builder_->Begin(Kind::kList, NextPosition());
  }
  bool end_array() { return End(); }

  // `position` is one byte after the byte that could not be read.
  template <typename Exception>
  bool parse_error(size_t position, const std::string&,
                   const Exception& error) {
    const absl::string_view before =
        text_.substr(0, position == 0 ? 0 : position - 1);
    const size_t line = before.rfind('\n');
    return builder_->Fail(
        {.line = static_cast<int>(
             1 + std::count(before.begin(), before.end(), '\n')),
         .column = static_cast<int>(line == absl::string_view::npos
                                        ? before.size() + 1
                                        : before.size() - line)},
        absl::StrCat("is not valid JSON", Reason(error.what())));
  }

 private:
  // ": unexpected '}'; expected string literal" from nlohmann's message. The
  // message begins with the same place counted differently.
  static std::string Reason(absl::string_view message) {
    constexpr absl::string_view kBefore = " - ";
    const size_t begin = message.rfind(kBefore);
    if (begin == absl::string_view::npos) return "";
    return absl::StrCat(": ", message.substr(begin + kBefore.size()));
  }

  bool Scalar(Kind kind, absl::string_view text) {
    return builder_->Scalar(kind, text, NextPosition());
  }

  bool Number(Kind kind) {
    const TextPosition position = NextPosition();
    const absl::string_view rest = text_.substr(token_);
    const size_t end = rest.find_first_not_of("+-.0123456789Ee");
    return builder_->Scalar(kind, rest.substr(0, end), position);
  }

  bool End() {
    (void)NextPosition();
    return builder_->End();
  }

  // The position of the token that was just read; also records where it ends.
  TextPosition NextPosition() {
    token_ = text_.find_first_not_of(" \t\r\n,:", end_);
    if (token_ == absl::string_view::npos) token_ = text_.size();
    for (; scanned_ < token_; ++scanned_) {
      if (text_[scanned_] != '\n') continue;
      ++line_;
      line_start_ = scanned_ + 1;
    }
    end_ = *num_read_;
    return {.line = line_,
            .column = static_cast<int>(token_ - line_start_) + 1};
  }

  absl::string_view text_;
  const size_t* num_read_;
  NodeBuilder* builder_;
  size_t token_ = 0;       // where the last token began
  size_t end_ = 0;         // where it ended
  size_t scanned_ = 0;     // lines are counted up to here
  size_t line_start_ = 0;  // where the line of the last token began
  int line_ = 1;
};

}  // namespace

void ReadJson(absl::string_view text, NodeBuilder& builder) {
  if (text.find_first_not_of(" \t\r\n") == absl::string_view::npos) return;
  size_t num_read = 0;
  SaxHandler handler(text, num_read, builder);
  nlohmann::json::sax_parse(
      CountingIterator(text.data(), &num_read),
      CountingIterator(text.data() + text.size(), &num_read), &handler);
}

}  // namespace dcp::document
