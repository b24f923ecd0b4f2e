// SPDX-License-Identifier: Apache-2.0
// RecordWords: reads the words of one line of a record that a conversion keeps
// for later runs or other workers. Pure; used by one thread.
#ifndef DCP_CHECKPOINT_CONVERT_RECORD_WORDS_H_
#define DCP_CHECKPOINT_CONVERT_RECORD_WORDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

inline absl::Status MalformedRecord(absl::string_view line) {
  return absl::DataLossError(
      absl::StrCat("the record of a conversion has a malformed line, '",
                   line.substr(0, 100), "'"));
}

// Reads the words of a line one by one; the last may be a name.
class RecordWords {
 public:
  explicit RecordWords(absl::string_view line) : line_(line), left_(line) {}

  absl::string_view Next() {
    const std::pair<absl::string_view, absl::string_view> split =
        absl::StrSplit(left_, absl::MaxSplits(' ', 1));
    left_ = split.second;
    return split.first;
  }
  // Reads the next word if it is `word`.
  bool NextIf(absl::string_view word) {
    const absl::string_view left = left_;
    if (Next() == word) return true;
    left_ = left;
    return false;
  }
  template <typename T>
  void Number(T& number) {
    ok_ = absl::SimpleAtoi(Next(), &number) && ok_;
  }
  void HexNumber(uint64_t& number) {
    ok_ = absl::SimpleHexAtoi(Next(), &number) && ok_;
  }
  void Name(std::string& name) {
    ok_ = absl::CUnescape(std::exchange(left_, {}), &name) && ok_;
  }
  void Type(DType& dtype) {
    const std::optional<DType> type = DTypeFromTorchName(Next());
    ok_ = type.has_value() && ok_;
    dtype = type.value_or(dtype);
  }
  void Expect(bool good) { ok_ = good && ok_; }

  absl::Status status() const {
    return ok_ && left_.empty() ? absl::OkStatus() : MalformedRecord(line_);
  }

 private:
  absl::string_view line_;
  absl::string_view left_;
  bool ok_ = true;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_RECORD_WORDS_H_
