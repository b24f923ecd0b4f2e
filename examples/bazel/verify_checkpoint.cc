// SPDX-License-Identifier: Apache-2.0
// Checks a checkpoint in any format: structure, coverage, CRCs and digests.
//
//   verify_checkpoint PATH

#include <iostream>
#include <memory>

#include "tessera/dcp.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "Usage: verify_checkpoint PATH\n";
    return 2;
  }
  const std::unique_ptr<dcp::FileSystem> fs = dcp::NewDefaultFileSystem();
  const auto report = dcp::VerifyCheckpoint(*fs, argv[1], {});
  if (!report.ok()) {
    std::cerr << report.status() << "\n";
    return 1;
  }
  for (const dcp::VerifyFinding& finding : report->findings) {
    std::cout << finding.file << ", byte " << finding.offset << ": "
              << finding.problem << "\n";
  }
  std::cout << report->num_items_checked << " items, "
            << report->findings.size() << " problems\n";
  return report->findings.empty() ? 0 : 1;
}
