// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/save/coordinator.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"

namespace dcp {
absl::StatusOr<std::vector<std::string>> SingleProcessCoordinator::Gather(
    std::string value) {
  return std::vector<std::string>{std::move(value)};
}

absl::StatusOr<std::string> SingleProcessCoordinator::Scatter(
    std::vector<std::string> values) {
  DCP_CHECK(values.size() == 1, "values=", values.size());
  return std::move(values[0]);
}

std::string EncodeStatus(const absl::Status& status) {
  return absl::StrCat(static_cast<int>(status.code()), " ", status.message());
}

absl::Status DecodeStatus(absl::string_view text) {
  const size_t space = text.find(' ');
  int code = 0;
  if (space == absl::string_view::npos ||
      !absl::SimpleAtoi(text.substr(0, space), &code)) {
    return absl::InternalError(
        "expected the status of a rank, found something else");
  }
  return absl::Status(static_cast<absl::StatusCode>(code),
                      text.substr(space + 1));
}

absl::Status FirstError(absl::Span<const absl::Status> statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    if (!statuses[rank].ok()) {
      return Annotate(statuses[rank], "rank ", rank);
    }
  }
  return absl::OkStatus();
}

absl::Status Agree(Coordinator& coordinator, const absl::Status& mine) {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                       coordinator.Gather(EncodeStatus(mine)));
  std::vector<std::string> verdicts;
  if (coordinator.rank() == 0) {
    std::vector<absl::Status> statuses;
    for (const std::string& text : all) statuses.push_back(DecodeStatus(text));
    verdicts.assign(all.size(), EncodeStatus(FirstError(statuses)));
  }
  DCP_ASSIGN_OR_RETURN(const std::string verdict,
                       coordinator.Scatter(std::move(verdicts)));
  return DecodeStatus(verdict);
}

}  // namespace dcp
