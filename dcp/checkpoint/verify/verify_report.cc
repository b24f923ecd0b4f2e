// SPDX-License-Identifier: Apache-2.0
// Adds reports, and turns errors into findings.
// Tested by tests/dcp/checkpoint/share/share_verify_test.cc.
#include "dcp/checkpoint/verify/verify_report.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/numbers.h"
#include "dcp/base/error_place.h"
#include "dcp/checkpoint/open/checkpoint.h"

namespace dcp {

void VerifyReport::Add(const VerifyReport& piece) {
  num_crcs_checked += piece.num_crcs_checked;
  num_digests_checked += piece.num_digests_checked;
  num_items_unchecked += piece.num_items_unchecked;
  bytes_checked += piece.bytes_checked;
  num_items_checked -= std::min(num_items_checked, piece.num_items_missed);
  if (piece.findings.empty()) return;
  findings.insert(findings.end(), piece.findings.begin(), piece.findings.end());
  std::sort(findings.begin(), findings.end(),
            [](const VerifyFinding& a, const VerifyFinding& b) {
              return std::tie(a.file, a.offset, a.name, a.problem) <
                     std::tie(b.file, b.offset, b.name, b.problem);
            });
}

VerifyFinding IndexFinding(const absl::Status& status) {
  const std::string file = StatusPlace(status).file;
  return {.name = "",
          .file = file.empty() ? "digests" : file,
          .problem = std::string(status.message())};
}

VerifyFinding EntryFinding(const Checkpoint& checkpoint, uint32_t entry,
                           const absl::Status& status) {
  const ErrorPlace place = StatusPlace(status);
  const CheckpointEntry& found = checkpoint.entries()[entry];
  VerifyFinding finding{.name = found.fqn,
                        .file = place.file,
                        .problem = std::string(status.message())};
  if (finding.file.empty()) {
    const StorageInfo& item = found.object() != nullptr
                                  ? found.object()->item
                                  : found.tensor()->locations[0].item;
    finding.file = checkpoint.files().names()[item.file];
    finding.offset = item.offset;
  }
  if (!place.offset.empty() &&
      !absl::SimpleAtoi(place.offset, &finding.offset)) {
    finding.offset = 0;
  }
  return finding;
}

}  // namespace dcp
