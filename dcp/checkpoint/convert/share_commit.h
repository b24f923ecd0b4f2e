// ShareCommit: the end of a conversion that workers share: makes the checkpoint
// appear once every piece has a record, and tells whether it is there. Several
// workers may try at the same time. share_convert.cc describes the protocol.
// Blocking; used by one thread.
#ifndef DCP_CHECKPOINT_CONVERT_SHARE_COMMIT_H_
#define DCP_CHECKPOINT_CONVERT_SHARE_COMMIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/convert/conversion.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/convert/work_records.h"
#include "dcp/checkpoint/open/digests.h"
#include "dcp/checkpoint/write/destination.h"
#include "dcp/io/file_system.h"
#include "dcp/plan/pieces.h"

namespace dcp {

class ShareCommit {
 public:
  enum class Outcome : uint8_t {
    kCommitted,  // by this call
    kWasThere,   // another worker has made it appear
    kByAnother,  // another worker is about to
  };

  // All must outlive this.
  ShareCommit(FileSystem& fs, absl::string_view dst, Conversion& conversion,
              WorkRecords& records, const WorkPlan& plan,
              ConvertOptions& options);

  // Whether the checkpoint of this plan is at the destination.
  absl::StatusOr<bool> IsThere();
  // Removes what is left of the work when it is there.
  void Clean();

  // All pieces have records. Puts into the plan of the conversion what all
  // workers have found. Unavailable if files are missing whose pieces have
  // records, which are then removed: the next run writes them again.
  absl::StatusOr<Outcome> Commit();

  // The files of this plan, for Destination.
  OwnFiles Own() const;

 private:
  std::string MarkPath(absl::string_view id) const;
  absl::StatusOr<std::string> MarkOf(absl::string_view path, uint64_t digest);
  absl::StatusOr<std::string> MarkOfDestination();
  absl::Status WriteMark(const std::vector<ChunkDigest>& digests);
  absl::StatusOr<std::string> Index();
  absl::Status CheckFiles(const Destination& destination);
  absl::Status ReadRecords(std::vector<PieceRecord>& records);
  absl::Status WriteMissing(const Destination& destination,
                            const std::vector<PieceRecord>& records);
  absl::Status CommitLocked(Destination& destination);

  FileSystem& fs_;
  const std::string dst_;
  Conversion& conversion_;
  WorkRecords& records_;
  const WorkPlan& plan_;
  ConvertOptions& options_;
  std::optional<std::string> index_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_SHARE_COMMIT_H_
