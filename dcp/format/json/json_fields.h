// SPDX-License-Identifier: Apache-2.0
// Shared by the parsers of JSON in checkpoints: arrays of numbers, and errors
// for misplaced values. Pure; any thread.
#ifndef DCP_FORMAT_JSON_JSON_FIELDS_H_
#define DCP_FORMAT_JSON_JSON_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/format/json/json.h"

namespace dcp {

// The largest number that fits a dimension.
inline constexpr uint64_t kMaxJsonNumber = std::numeric_limits<int64_t>::max();

inline absl::Status MisplacedJson(absl::string_view where) {
  return absl::DataLossError(
      absl::StrCat(where, ": a value of an unexpected type"));
}

// The start of `text`, for messages: a hostile name must not fill them.
inline absl::string_view ShortJson(absl::string_view text) {
  return text.substr(0, 200);
}

// Collects an array of at most kMax numbers into a T.
template <typename T, size_t kMax>
class JsonNumbers {
 public:
  // True when `event` belongs to the array: the two ends and the numbers.
  absl::Status Take(const JsonEvent& event, absl::string_view where) {
    switch (event.kind) {
      case JsonEvent::Kind::kBeginArray:
        if (begun_) break;
        begun_ = true;
        return absl::OkStatus();
      case JsonEvent::Kind::kEndArray:
        return absl::OkStatus();
      case JsonEvent::Kind::kUnsigned:
        if (!begun_ || event.number > kMaxJsonNumber) break;
        if (values_.size() == kMax) {
          return absl::DataLossError(
              absl::StrCat(where, ": more than ", kMax, " numbers"));
        }
        values_.push_back(static_cast<typename T::value_type>(event.number));
        return absl::OkStatus();
      default:
        break;
    }
    return MisplacedJson(where);
  }

  bool begun() const { return begun_; }
  const T& values() const { return values_; }

 private:
  bool begun_ = false;
  T values_;
};

}  // namespace dcp

#endif  // DCP_FORMAT_JSON_JSON_FIELDS_H_
