// Tested by tests/dcp/checkpoint/share_verify_test.cc.
#include "dcp/checkpoint/read/verify_report.h"

#include <algorithm>
#include <tuple>

namespace dcp {

void VerifyReport::Add(const VerifyReport& piece) {
  num_crcs_checked += piece.num_crcs_checked;
  num_digests_checked += piece.num_digests_checked;
  num_items_unchecked += piece.num_items_unchecked;
  bytes_checked += piece.bytes_checked;
  if (piece.findings.empty()) return;
  findings.insert(findings.end(), piece.findings.begin(), piece.findings.end());
  std::sort(findings.begin(), findings.end(),
            [](const VerifyFinding& a, const VerifyFinding& b) {
              return std::tie(a.file, a.offset, a.name, a.problem) <
                     std::tie(b.file, b.offset, b.name, b.problem);
            });
}

}  // namespace dcp
