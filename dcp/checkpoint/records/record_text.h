// SPDX-License-Identifier: Apache-2.0
// RecordWriter and RecordReader: the text of a record for later runs of a
// conversion, or for other workers:
//
//   tessera-record 1 <kind> <values>
//   <word> <values>
//   ...
//   end
//
// Both have the same functions, so one template describes a record in both
// directions: it passes the values in the text's order. A space is in front of
// each value. Numbers are decimal, digests and CRCs hexadecimal; a name is
// escaped and ends the line. Pure; used by one thread.
#ifndef DCP_CHECKPOINT_RECORDS_RECORD_TEXT_H_
#define DCP_CHECKPOINT_RECORDS_RECORD_TEXT_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// The number changes whenever another version could not read the text.
inline constexpr absl::string_view kRecordMagic = "tessera-record 1 ";

inline absl::Status MalformedRecord(absl::string_view text) {
  return absl::DataLossError(absl::StrCat(
      "the record of a conversion has a malformed line, '",
      text.substr(0, std::min<size_t>(text.find('\n'), 100)), "'"));
}

class RecordWriter {
 public:
  static constexpr bool kReads = false;

  explicit RecordWriter(absl::string_view kind)
      : text_(absl::StrCat(kRecordMagic, kind)) {}

  // Begins a line if it is present.
  bool Line(absl::string_view word, bool present) {
    if (present) absl::StrAppend(&text_, "\n", word);
    return present;
  }

  template <typename T>
  void Number(T number) {
    absl::StrAppend(&text_, " ", number);
  }
  void Digest(uint64_t digest) {
    absl::StrAppend(&text_, " ", absl::Hex(digest, absl::kZeroPad16));
  }
  void Crc(uint32_t crc) { absl::StrAppend(&text_, " ", absl::Hex(crc)); }
  void Word(absl::string_view word) { absl::StrAppend(&text_, " ", word); }
  void Name(absl::string_view name) {
    absl::StrAppend(&text_, " ", absl::CEscape(name));
  }
  void Type(DType dtype) { Word(TorchName(dtype)); }
  template <typename T>
  void Enum(T value, T /*last*/) {
    Number(static_cast<uint32_t>(value));
  }
  void Expect(bool) {}

  std::string text() const { return absl::StrCat(text_, "\nend\n"); }

 private:
  std::string text_;
};

// After the first error, values mean nothing, and no line is present.
class RecordReader {
 public:
  static constexpr bool kReads = true;

  // FailedPrecondition for a record of another version, DataLoss for anything
  // else that is not a record of this kind. `text` must outlive the reader.
  static absl::StatusOr<RecordReader> Open(absl::string_view text,
                                           absl::string_view kind) {
    RecordReader reader(text);
    if (!absl::ConsumeSuffix(&reader.lines_, "\nend\n")) {
      return MalformedRecord(text);
    }
    if (!absl::StartsWith(text, kRecordMagic)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the record begins with '",
          text.substr(0, text.find('\n')).substr(0, 100), "' instead of '",
          kRecordMagic, kind,
          "': another version of this program wrote it; finish or discard the "
          "work with that version"));
    }
    reader.lines_.remove_prefix(kRecordMagic.size());
    bool present = false;
    reader.Expect(reader.Line(kind, present));
    return reader;
  }

  // Goes to the next line if it begins with `word`.
  bool Line(absl::string_view word, bool& present) {
    Expect(values_.empty());
    const absl::string_view line = lines_.substr(0, lines_.find('\n'));
    const std::pair<absl::string_view, absl::string_view> split =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    present = ok_ && split.first == word;
    if (!present) return false;
    line_ = line;
    values_ = split.second;
    lines_.remove_prefix(std::min(lines_.size(), line.size() + 1));
    return true;
  }

  template <typename T>
  void Number(T& number) {
    Expect(absl::SimpleAtoi(Next(), &number));
  }
  void Digest(uint64_t& digest) {
    Expect(absl::SimpleHexAtoi(Next(), &digest));
  }
  void Crc(uint32_t& crc) { Expect(absl::SimpleHexAtoi(Next(), &crc)); }
  void Word(std::string& word) { word = std::string(Next()); }
  void Name(std::string& name) {
    Expect(absl::CUnescape(std::exchange(values_, {}), &name));
  }
  void Type(DType& dtype) {
    const std::optional<DType> type = DTypeFromTorchName(Next());
    Expect(type.has_value());
    dtype = type.value_or(dtype);
  }
  template <typename T>
  void Enum(T& value, T last) {
    uint32_t number = 0;
    Number(number);
    Expect(number <= static_cast<uint32_t>(last));
    if (ok_) value = static_cast<T>(number);
  }
  void Expect(bool good) { ok_ = good && ok_; }

  // DataLoss unless everything was read, and as expected.
  absl::Status status() const {
    if (ok_ && values_.empty() && lines_.empty()) return absl::OkStatus();
    return MalformedRecord(ok_ && values_.empty() ? lines_ : line_);
  }

 private:
  explicit RecordReader(absl::string_view text) : lines_(text), line_(text) {}

  absl::string_view Next() {
    const std::pair<absl::string_view, absl::string_view> split =
        absl::StrSplit(values_, absl::MaxSplits(' ', 1));
    values_ = split.second;
    return split.first;
  }

  absl::string_view lines_;   // after the current one
  absl::string_view line_;    // the current one, for an error
  absl::string_view values_;  // in the current line, not read yet
  bool ok_ = true;
};

// One line for each value, with `word` in front; `fields` passes the values in
// it.
template <typename Text, typename Values, typename Fields>
void EachLine(Text& text, absl::string_view word, Values& values,
              Fields fields) {
  if constexpr (Text::kReads) {
    for (bool more = true; text.Line(word, more);) {
      fields(values.emplace_back());
    }
  } else {
    for (const auto& value : values) {
      text.Line(word, true);
      fields(value);
    }
  }
}

// A line for each name.
template <typename Text, typename Names>
void NameLines(Text& text, absl::string_view word, Names& names) {
  EachLine(text, word, names, [&text](auto& name) { text.Name(name); });
}

// The comparisons with the source's checksums, if there were any.
template <typename Text, typename Check>
void CheckLine(Text& text, Check& check) {
  if (!text.Line("checked", check.checked)) return;
  text.Number(check.num_crcs_checked);
  text.Number(check.num_digests_checked);
  text.Number(check.bytes_checked);
  text.Number(check.num_items_unchecked);
  text.Number(check.bytes_unchecked);
}

// A line that is there if `value` is.
template <typename Text, typename Optional, typename Fields>
void OptionalLine(Text& text, absl::string_view word, Optional& value,
                  Fields fields) {
  bool present = value.has_value();
  if (!text.Line(word, present)) return;
  if constexpr (Text::kReads) value.emplace();
  fields(*value);
}

}  // namespace dcp

#endif  // DCP_CHECKPOINT_RECORDS_RECORD_TEXT_H_
