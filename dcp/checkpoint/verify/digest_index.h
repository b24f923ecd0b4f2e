// SPDX-License-Identifier: Apache-2.0
// DigestIndex: a checkpoint's recorded digests, by the file stretch that they
// describe. Thread-compatible.
#ifndef DCP_CHECKPOINT_VERIFY_DIGEST_INDEX_H_
#define DCP_CHECKPOINT_VERIFY_DIGEST_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "dcp/checkpoint/open/checkpoint.h"

namespace dcp {

// A recorded digest for a stretch in one of the checkpoint's files.
struct PlacedDigest {
  uint32_t file;
  uint64_t offset;
  uint64_t length;
  uint64_t digest;

  auto place() const { return std::pair(file, offset); }
};

class DigestIndex {
 public:
  // Reads the digests in `checkpoint`, if it has any. DataLoss when they are
  // malformed; the index is then empty.
  absl::Status Read(const Checkpoint& checkpoint);

  size_t size() const { return digests_.size(); }
  const PlacedDigest& operator[](size_t i) const { return digests_[i]; }

  // The last recorded digest of exactly that stretch.
  std::optional<size_t> Find(uint32_t file, uint64_t offset,
                             uint64_t length) const;

 private:
  std::vector<PlacedDigest> digests_;  // by place
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_VERIFY_DIGEST_INDEX_H_
