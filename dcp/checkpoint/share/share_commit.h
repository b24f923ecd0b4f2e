// SPDX-License-Identifier: Apache-2.0
// ShareCommit: the end of a conversion that workers share: makes the checkpoint
// appear once every piece has a record, and tells whether it is there. Several
// workers may try at the same time. share_convert.cc describes the protocol.
// It is an interface because disks and object stores end it in different ways:
// disk_share_commit.h and store_share_commit.h. Blocking; used by one thread.
#ifndef DCP_CHECKPOINT_SHARE_SHARE_COMMIT_H_
#define DCP_CHECKPOINT_SHARE_SHARE_COMMIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/convert/conversion.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/checkpoint/share/work_records.h"
#include "dcp/io/file_system.h"
#include "dcp/plan/pieces.h"

namespace dcp {

// The files of `output` for the functions of pieces.h. If they are not cut,
// each is one piece with everything.
std::vector<FileToCut> FilesToCut(const Output& output, bool cuts);

// What the workers of a conversion agree on: pieces of about `piece_bytes`, or,
// in an object store, where a file has one writer, of whole files.
WorkPlan MakeWorkPlan(FileSystem& fs, absl::string_view dst,
                      const Conversion& conversion, uint64_t piece_bytes);

class ShareCommit {
 public:
  enum class Outcome : uint8_t {
    kCommitted,  // by this call
    kWasThere,   // another worker has made it appear
    kByAnother,  // another worker is about to
  };

  // For the destination `dst`. All must outlive this.
  ShareCommit(FileSystem& fs, absl::string_view dst, Conversion& conversion,
              WorkRecords& records, const WorkPlan& plan,
              ConvertOptions& options);

  virtual ~ShareCommit() = default;
  ShareCommit(const ShareCommit&) = delete;
  ShareCommit& operator=(const ShareCommit&) = delete;

  // Whether the checkpoint of this plan is at the destination.
  virtual absl::StatusOr<bool> IsThere() = 0;
  // Removes what is left of the work when it is there.
  virtual void Clean() = 0;

  // All pieces have records. Puts into the plan of the conversion what all
  // workers have found. Unavailable if files are missing whose pieces have
  // records, which are then removed: the next run writes them again.
  virtual absl::StatusOr<Outcome> Commit() = 0;

  // The files of this plan, for Destination.
  OwnFiles Own() const;

 protected:
  // The steps of MakeAppear that are not the same everywhere: sees to it that
  // the files of which the records speak are there and complete; and writes
  // down what must be known of the result before it appears.
  virtual absl::Status Complete(const std::vector<PieceRecord>& records,
                                Destination& destination) = 0;
  virtual absl::Status Announce(const std::vector<ChunkDigest>& digests) = 0;

  // Makes the checkpoint appear, for Commit.
  absl::Status MakeAppear(Destination& destination);
  absl::StatusOr<std::string> Index();
  // Whether the index at the destination is that of this plan.
  absl::StatusOr<bool> HasIndex();
  // Removes the records of a file, and returns Unavailable: `path` is gone.
  absl::Status ForgetFile(uint32_t file, absl::string_view path);
  // Removes the records, after `status`; says so if it cannot.
  void RemoveRecords(absl::Status status);

  FileSystem& fs_;
  const std::string dst_;  // without slashes at its end
  Conversion& conversion_;
  WorkRecords& records_;
  const WorkPlan& plan_;
  ConvertOptions& options_;

 private:
  absl::StatusOr<std::vector<PieceRecord>> ReadRecords();
  // Puts together the parts that workers saw of the same stretches of the
  // source. DataLoss if their checksum is not the one that the source records.
  // The pieces that were made of them are then without records, so that the
  // next run makes them again.
  absl::Status CheckSource(const std::vector<PieceRecord>& records);

  std::optional<std::string> index_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_SHARE_COMMIT_H_
