// SPDX-License-Identifier: Apache-2.0
// Setting: a value from a training config together with the place where a user
// wrote it, for messages about it. Plain values; any thread.
#ifndef CONFIG_DOCUMENT_SETTING_H_
#define CONFIG_DOCUMENT_SETTING_H_

#include <concepts>
#include <optional>
#include <string>
#include <utility>

#include "document/problem.h"

namespace fsdp {

using dcp::document::SourceLocation;
using dcp::document::to_string;

// Two settings are equal if their values are, regardless of their places.
template <typename T>
class Setting {
 public:
  Setting() = default;
  // From anything that converts to T: .shard_degree = 4, .param_dtype =
  // DType::kBFloat16.
  template <std::convertible_to<T> U>
  // NOLINTNEXTLINE(google-explicit-constructor): as above
  Setting(U&& value) : value_(std::forward<U>(value)) {}
  Setting(T value, SourceLocation place)
      : value_(std::move(value)), place_(std::move(place)) {}

  const T& value() const { return value_; }
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }

  // Absent: a default, or set by a program.
  const std::optional<SourceLocation>& place() const { return place_; }

  friend bool operator==(const Setting& a, const Setting& b) {
    return a.value_ == b.value_;
  }

 private:
  T value_{};
  std::optional<SourceLocation> place_;
};

// For a value that may be absent.
template <typename T>
Setting<std::optional<T>> Some(T value, SourceLocation place) {
  return Setting<std::optional<T>>(std::optional<T>(std::move(value)),
                                   std::move(place));
}

}  // namespace fsdp

#endif  // CONFIG_DOCUMENT_SETTING_H_
