// SPDX-License-Identifier: Apache-2.0

#include "config/document/findings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "document/problem.h"

namespace fsdp {

std::string to_string(const Finding& finding) {
  return to_string(dcp::document::Problem{finding.place, finding.text});
}

void Findings::Append(Findings others) {
  for (Finding& finding : others.list_) list_.push_back(std::move(finding));
}

bool Findings::has_problems() const {
  return std::any_of(list_.begin(), list_.end(), [](const Finding& finding) {
    return finding.kind == Finding::Kind::kProblem;
  });
}

absl::Status Findings::ToStatus() const {
  std::string message;
  for (const Finding& finding : list_) {
    if (finding.kind != Finding::Kind::kProblem) continue;
    absl::StrAppend(&message, message.empty() ? "" : "\n", to_string(finding));
  }
  if (message.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(message);
}

}  // namespace fsdp
