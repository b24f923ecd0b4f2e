// SPDX-License-Identifier: Apache-2.0
// ShareCommit: the end of a shared conversion. Makes the checkpoint appear once
// every piece has a record, and tells whether it is there. Several workers may
// try at the same time. share_convert.cc describes the protocol. It is an
// interface because disks (disk_share_commit.h) and object stores
// (store_share_commit.h) end it in different ways. Blocking; used by one
// thread.
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
#include "dcp/checkpoint/records/work_records.h"
#include "dcp/io/file_system.h"

namespace dcp {

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

  // Whether this plan's checkpoint is at the destination.
  virtual absl::StatusOr<bool> IsThere() = 0;
  // Removes the leftovers once the checkpoint is there.
  virtual void Clean() = 0;

  // All pieces have records. Adds all findings to the
  // conversion's plan. Unavailable if a file is missing although all pieces of
  // it have records: these records are then removed, and the next run writes
  // the file again.
  virtual absl::StatusOr<Outcome> Commit() = 0;

  // This plan's files, for Destination.
  OwnFiles Own() const;

 protected:
  // The steps of MakeAppear that differ. Complete checks that the recorded
  // files are there, and completes them. Announce records the identity of the
  // result before it appears.
  virtual absl::Status Complete(const std::vector<PieceRecord>& records,
                                Destination& destination) = 0;
  virtual absl::Status Announce(const std::vector<ChunkDigest>& digests) = 0;

  // Makes the checkpoint appear, for Commit.
  absl::Status MakeAppear(Destination& destination);
  absl::StatusOr<std::string> Index();
  // Whether the index at the destination is this plan's.
  absl::StatusOr<bool> HasIndex();
  // Removes a file's records, and returns Unavailable: `path` is gone.
  absl::Status ForgetFile(uint32_t file, absl::string_view path);
  // Removes the records if `status` is OK. Logs an error.
  void RemoveRecords(absl::Status status);

  FileSystem& fs_;
  const std::string dst_;  // without slashes at the end
  Conversion& conversion_;
  WorkRecords& records_;
  const WorkPlan& plan_;
  ConvertOptions& options_;

 private:
  absl::StatusOr<std::vector<PieceRecord>> ReadRecords();
  // Puts together the parts of the same stretch of the source that several
  // workers have seen. DataLoss if the checksum differs from the recorded one:
  // the pieces with these parts then lose their records, and the next run makes
  // them again.
  absl::Status CheckSource(const std::vector<PieceRecord>& records);

  std::optional<std::string> index_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_SHARE_COMMIT_H_
