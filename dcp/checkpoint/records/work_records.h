// SPDX-License-Identifier: Apache-2.0
// WorkRecords: keeps the records of workers that share a conversion or a verify
// in the files of one directory. Workers know nothing else of each other.
// share_convert.h makes the directory and removes it; share_verify.h makes it.
// Blocking; any thread.
#ifndef DCP_CHECKPOINT_RECORDS_WORK_RECORDS_H_
#define DCP_CHECKPOINT_RECORDS_WORK_RECORDS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/destination/replaceable.h"
#include "dcp/checkpoint/records/work_record.h"
#include "dcp/io/file_system.h"

namespace dcp {

// This machine's name, for records.
std::string HostName();

// How many records are read, looked for or removed at the same time.
inline constexpr uint32_t kRecordsAtOnce = 32;

class WorkRecords {
 public:
  // `fs` must outlive this.
  WorkRecords(FileSystem& fs, std::string directory)
      : fs_(fs), directory_(std::move(directory)) {}

  // The directory for the plan `id` at the destination `path`: inside a DCP
  // directory, next to another destination.
  static std::string RecordsDirectory(absl::string_view path,
                                      DestinationKind kind,
                                      absl::string_view id);
  // The directories at the destination `path`, whatever their plans and kinds.
  static absl::StatusOr<std::vector<std::string>> Find(FileSystem& fs,
                                                       absl::string_view path);

  // FailedPrecondition if workers with another plan are at work at the
  // destination `path`.
  absl::Status CheckNoOthers(absl::string_view path) const;

  const std::string& directory() const { return directory_; }

  // Makes the directory unless it is there; the parent exists. Records
  // the plan durably, unless another worker has. FailedPrecondition if that is
  // not the same plan.
  absl::Status Begin(const WorkPlan& plan);
  absl::StatusOr<WorkPlan> ReadPlan();

  // The pieces without a record, in the same order. Looks at the records
  // themselves, because a list of the directory may be old.
  absl::StatusOr<std::vector<uint32_t>> Without(std::vector<uint32_t> pieces);
  // Records the piece durably. NotFound without the directory. In an object
  // store, a record that another worker has put stays.
  absl::Status Write(uint32_t piece, PieceRecord record);
  // The record of a piece of `plan`; NotFound if there is none.
  absl::StatusOr<PieceRecord> Read(uint32_t piece, const WorkPlan& plan);
  // Whether all pieces have records. NotFound if the work has ended.
  absl::StatusOr<bool> HasAll(uint32_t num_pieces);
  // After this the piece has to be written again.
  absl::Status Forget(uint32_t piece);
  // Not for object stores: makes a file with these bytes appear at `path`, on
  // the same file system, whole and durable; replaces what is there.
  absl::Status Publish(const std::string& path, absl::string_view bytes);

  // Removes the directory and everything in it; another worker may do so at the
  // same time.
  absl::Status Remove();

 private:
  std::string PathOf(uint32_t piece) const;
  absl::StatusOr<bool> Has(uint32_t piece);
  // Makes a record appear, unless it is there.
  absl::Status Put(const std::string& path, absl::string_view bytes);

  FileSystem& fs_;
  const std::string directory_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_RECORDS_WORK_RECORDS_H_
