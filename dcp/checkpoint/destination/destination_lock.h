// SPDX-License-Identifier: Apache-2.0
// DestinationLock: ensures that only one writer at a time works on a
// destination. The lock file lies where the writer makes files: in a DCP
// directory, which is written in place, and next to any other destination. It
// names the writer to others, and after a crash it tells the next writer which
// files to remove. renamed_destination.cc describes the protocol. Used by one
// thread.
#ifndef DCP_CHECKPOINT_DESTINATION_DESTINATION_LOCK_H_
#define DCP_CHECKPOINT_DESTINATION_DESTINATION_LOCK_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The lock file in a directory.
inline constexpr absl::string_view kLockName = ".writer.lock";

class DestinationLock {
 public:
  // The lock file inside the directory `path`, or next to the destination
  // `path`.
  static std::string PathInside(absl::string_view path);
  static std::string PathNextTo(absl::string_view path);

  // Takes the lock file `path` for `writer` ("dcp-convert reshard").
  // FailedPrecondition when another writer has it; the error gives that
  // writer's name, host, process and time. NotFound when the directory for the
  // lock file is missing. `fs` must outlive this.
  static absl::StatusOr<std::unique_ptr<DestinationLock>> Take(
      FileSystem& fs, std::string path, absl::string_view writer);

  // The same, but null when another writer has the lock. Where only the
  // existence of the file is the lock, that is an error too, because the writer
  // may be dead.
  static absl::StatusOr<std::unique_ptr<DestinationLock>> TryTake(
      FileSystem& fs, std::string path, absl::string_view writer);

  // Releases the lock.
  ~DestinationLock();
  DestinationLock(const DestinationLock&) = delete;
  DestinationLock& operator=(const DestinationLock&) = delete;

  // The files that this writer made at a destination that it writes in place:
  // all checkpoint files that are there, or the directory too.
  struct Made {
    bool files = false;
    bool directory = false;
  };
  // The files that the last holder had made, if it died with the lock.
  const Made& left() const { return left_; }
  // Records `made`, once, for the next writer in case this one dies. If
  // recording fails, the next writer removes less.
  void Record(const Made& made);

  // Says where the lock file is after the directory was renamed.
  void MovedTo(std::string path) { path_ = std::move(path); }

 private:
  static std::unique_ptr<DestinationLock> Holding(FileSystem& fs,
                                                  std::string path,
                                                  const FileLock& lock);
  DestinationLock(FileSystem& fs, std::string path, File file, Made left)
      : fs_(fs), path_(std::move(path)), file_(file), left_(left) {}

  FileSystem& fs_;
  std::string path_;
  const File file_;
  const Made left_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_DESTINATION_LOCK_H_
