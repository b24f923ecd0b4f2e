// SPDX-License-Identifier: Apache-2.0
// DiskShareCommit: a ShareCommit where files can be renamed and locked. Several
// workers may write one file. The committing worker adds the literals that need
// the checksums of several pieces.
#ifndef DCP_CHECKPOINT_SHARE_DISK_SHARE_COMMIT_H_
#define DCP_CHECKPOINT_SHARE_DISK_SHARE_COMMIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/share/share_commit.h"

namespace dcp {

class DiskShareCommit final : public ShareCommit {
 public:
  using ShareCommit::ShareCommit;

  absl::StatusOr<bool> IsThere() override;
  void Clean() override;
  absl::StatusOr<Outcome> Commit() override;

 private:
  std::string MarkPath(absl::string_view id) const;
  absl::StatusOr<std::string> FindMark(absl::string_view path, uint64_t digest);
  absl::StatusOr<std::string> MarkOfDestination();
  bool IsAnythingLeft();
  bool HasStaging();
  void RemoveWhatIsLeft(Destination& destination);
  absl::Status Announce(const std::vector<ChunkDigest>& digests) override;
  absl::Status Complete(const std::vector<PieceRecord>& records,
                        Destination& destination) override;
  absl::Status WriteMissing(const Destination& destination,
                            absl::Span<const PieceRecord> records);
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_DISK_SHARE_COMMIT_H_
