// SPDX-License-Identifier: Apache-2.0

#include "config/document/findings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fsdp {

std::string to_string(const Finding& finding) {
  const std::string place = to_string(finding.place);
  if (place.empty()) return finding.text;
  // A place without a key ends in a file or a line, which cannot be the subject
  // of the sentence.
  return absl::StrCat(place, finding.place.key.empty() ? ": " : " ",
                      finding.text);
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
