// SPDX-License-Identifier: Apache-2.0
// StoreShareCommit: a ShareCommit in an object store, where nothing is renamed
// or locked, and every file has one writer. Except for DCP, files are hidden
// until a committing worker publishes them, and have the plan's id as their
// label. Workers that commit at the same time do the same.
#ifndef DCP_CHECKPOINT_SHARE_STORE_SHARE_COMMIT_H_
#define DCP_CHECKPOINT_SHARE_STORE_SHARE_COMMIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/share/share_commit.h"

namespace dcp {

class StoreShareCommit final : public ShareCommit {
 public:
  using ShareCommit::ShareCommit;

  absl::StatusOr<bool> IsThere() override;
  void Clean() override;
  absl::StatusOr<Outcome> Commit() override;

 private:
  // Whether a file is there, or can be published.
  enum class Found : uint8_t { kVisible, kHidden, kNot };

  std::string LastFile() const;
  absl::StatusOr<Found> Find(uint32_t file, const PieceRecord& record,
                             const std::string& path);
  absl::Status Complete(const std::vector<PieceRecord>& records,
                        Destination& destination) override;
  absl::Status Announce(const std::vector<ChunkDigest>&) override {
    return absl::OkStatus();
  }
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_STORE_SHARE_COMMIT_H_
