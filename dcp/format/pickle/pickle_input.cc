// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_input.h"

#include "absl/strings/str_cat.h"

namespace dcp {

absl::Status PickleInput::TakeLine(absl::string_view& line) {
  const absl::string_view rest = AsText(bytes_.subspan(at_));
  const size_t end = rest.find('\n');
  if (end == absl::string_view::npos) {
    return absl::DataLossError("a line has no end");
  }
  line = rest.substr(0, end);
  at_ += end + 1;
  return absl::OkStatus();
}

absl::Status PickleInput::Truncated(uint64_t num_expected) const {
  return absl::DataLossError(
      absl::StrCat("expected ", num_expected, " bytes, found ", num_left()));
}

}  // namespace dcp
