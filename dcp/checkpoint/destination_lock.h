// DestinationLock: that one writer at a time works on a destination. A lock
// file lies where the writer makes its files: in a DCP directory, which is
// written in place, and beside everything else. It tells others who writes, and
// after a crash the next writer what it may clear away. The protocol is written
// out in commit.cc. Used by one thread.
#ifndef DCP_CHECKPOINT_DESTINATION_LOCK_H_
#define DCP_CHECKPOINT_DESTINATION_LOCK_H_

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
  // Of the directory `path`, or beside the destination `path`.
  static std::string InsideOf(absl::string_view path);
  static std::string BesideOf(absl::string_view path);

  // Takes the lock file `path` for `writer` ("dcp-convert reshard").
  // FailedPrecondition when another writer has it, who is named with host,
  // process and time; NotFound when there is no directory for it. `fs` must
  // outlive this.
  static absl::StatusOr<std::unique_ptr<DestinationLock>> Take(
      FileSystem& fs, std::string path, absl::string_view writer);

  // Lets go.
  ~DestinationLock();
  DestinationLock(const DestinationLock&) = delete;
  DestinationLock& operator=(const DestinationLock&) = delete;

  // What this writer has made at a destination that it goes into in place: all
  // files of a checkpoint that are there, or the directory too.
  struct Made {
    bool files = false;
    bool directory = false;
  };
  // What a writer had made that died with the lock.
  const Made& left() const { return left_; }
  // Says it, once, for the writer that comes after this one's death. Where that
  // fails, the other clears less away.
  void Record(const Made& made);

  // Where the lock file is now, when its directory was renamed.
  void MovedTo(std::string path) { path_ = std::move(path); }

 private:
  DestinationLock(FileSystem& fs, std::string path, File file, Made left)
      : fs_(fs), path_(std::move(path)), file_(file), left_(left) {}

  FileSystem& fs_;
  std::string path_;
  const File file_;
  const Made left_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_LOCK_H_
