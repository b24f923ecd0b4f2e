// SPDX-License-Identifier: Apache-2.0
// The stack of a pickle's machine: values, and marks between them. A mark is
// the stack's height when it was set, and no value below the last mark can be
// popped before the mark is. Used only by the pickle reader; one thread.
#ifndef DCP_FORMAT_PICKLE_PICKLE_STACK_H_
#define DCP_FORMAT_PICKLE_PICKLE_STACK_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/format/value/value.h"

namespace dcp {

class PickleStack {
 public:
  // DataLoss unless `count` values lie above the last mark. The accessors below
  // require as much.
  absl::Status Need(size_t count) const {
    if (values_.size() - floor_ < count) {
      return absl::DataLossError("too few values on the stack");
    }
    return absl::OkStatus();
  }

  size_t size() const { return values_.size(); }
  // Whether no value lies above the last mark.
  bool is_at_mark() const { return values_.size() == floor_; }
  Value& Top(size_t below = 0) { return values_[values_.size() - 1 - below]; }
  void Push(Value value) { values_.push_back(value); }
  void Pop(size_t count) { values_.resize(values_.size() - count); }
  absl::Span<const Value> From(size_t first) const {
    return absl::MakeConstSpan(values_).subspan(first);
  }
  absl::Span<Value> values() { return absl::MakeSpan(values_); }

  void PushMark() {
    marks_.push_back(values_.size());
    floor_ = values_.size();
  }
  // Removes the last mark; the values pushed since then begin at `first`.
  absl::Status PopMark(size_t& first) {
    if (marks_.empty()) return absl::DataLossError("the stack has no mark");
    first = marks_.back();
    marks_.pop_back();
    floor_ = marks_.empty() ? 0 : marks_.back();
    return absl::OkStatus();
  }

 private:
  std::vector<Value> values_;
  std::vector<size_t> marks_;
  size_t floor_ = 0;  // the last mark
};

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_PICKLE_STACK_H_
