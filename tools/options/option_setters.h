// SPDX-License-Identifier: Apache-2.0
// Setters: functions that store common kinds of options, for the rows in a
// tool's table. The field is a pointer to a member in the tool's options
// struct. Pure; any thread.
#ifndef TOOLS_OPTIONS_OPTION_SETTERS_H_
#define TOOLS_OPTIONS_OPTION_SETTERS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dcp::tools {

// "'x' is not a number": `expected` includes the article.
inline absl::Status IsNot(absl::string_view value, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", value, "' is not ", expected));
}

// A bool, which a flag sets.
template <auto kField, typename Line>
absl::Status SetFlag(absl::string_view /*value*/, Line& line) {
  line.*kField = true;
  return absl::OkStatus();
}

// A string that is not empty.
template <auto kField, typename Line>
absl::Status SetText(absl::string_view value, Line& line) {
  if (value.empty()) return IsNot(value, "a name");
  line.*kField = std::string(value);
  return absl::OkStatus();
}

// An integer from 1 to the type's maximum. The field stays unchanged if the
// text is wrong.
template <auto kField, typename Line>
absl::Status SetPositive(absl::string_view value, Line& line) {
  auto number = line.*kField;
  if (!absl::SimpleAtoi(value, &number) || number < 1) {
    return IsNot(value, "a number from 1");
  }
  line.*kField = number;
  return absl::OkStatus();
}

}  // namespace dcp::tools

#endif  // TOOLS_OPTIONS_OPTION_SETTERS_H_
