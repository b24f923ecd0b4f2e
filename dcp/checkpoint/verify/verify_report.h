// SPDX-License-Identifier: Apache-2.0
// VerifyReport: a verify's result. Plain data; any thread.
#ifndef DCP_CHECKPOINT_VERIFY_VERIFY_REPORT_H_
#define DCP_CHECKPOINT_VERIFY_VERIFY_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "dcp/checkpoint/files/format.h"

namespace dcp {

class Checkpoint;

struct VerifyFinding {
  std::string name;  // the tensor's or object's; empty for the checkpoint
  std::string file;
  uint64_t offset = 0;
  std::string problem;

  friend bool operator==(const VerifyFinding&, const VerifyFinding&) = default;
};

struct VerifyReport {
  // Facts from the index, and the sample.
  Format format = Format::kDcp;
  uint64_t num_tensors = 0;
  uint64_t num_objects = 0;
  uint64_t num_chunks = 0;
  uint64_t num_items = 0;  // chunks and objects
  uint64_t num_items_checked = 0;
  // The checkpoint's losses; see SourceLoss.
  std::vector<std::string> warnings = {};
  // The comparisons.
  uint64_t num_crcs_checked = 0;
  uint64_t num_digests_checked = 0;
  uint64_t num_items_unchecked = 0;  // neither CRC nor digest is recorded
  // In a piece's report: sampled items that a finding kept from being read. Add
  // subtracts them from num_items_checked.
  uint64_t num_items_missed = 0;
  uint64_t bytes_checked = 0;
  // By file and offset; empty: all is well.
  std::vector<VerifyFinding> findings = {};

  // Whether no byte was compared with a checksum although there are bytes: then
  // only the structure is known to be sound.
  bool checked_no_content() const {
    return bytes_checked == 0 && num_items_unchecked > 0;
  }

  // Adds the report on another piece of the same checkpoint.
  void Add(const VerifyReport& piece);

  friend bool operator==(const VerifyReport&, const VerifyReport&) = default;
};

// The finding for a damaged index or header.
VerifyFinding IndexFinding(const absl::Status& status);

// The finding for an item in `entry` that contradicts the index. The error
// knows the place, unless a file cannot even be opened.
VerifyFinding EntryFinding(const Checkpoint& checkpoint, uint32_t entry,
                           const absl::Status& status);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_VERIFY_VERIFY_REPORT_H_
