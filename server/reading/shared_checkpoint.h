// SPDX-License-Identifier: Apache-2.0
// SharedCheckpoint: an open checkpoint with the state of the files, shared by
// the calls that read it. Thread-safe.
#ifndef SERVER_READING_SHARED_CHECKPOINT_H_
#define SERVER_READING_SHARED_CHECKPOINT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "server/access/rooted_file_system.h"
#include "server/process/task_queue.h"

namespace dcp::server {

// The state of the files when the checkpoint was opened.
struct CheckpointState {
  std::string digest = {};  // of the text from IndexState and FilesState
  std::string etag;         // digest of that, and of the mapping
  // Each file's bytes, in the order of the index; absent if the file does not
  // exist.
  std::vector<std::optional<uint64_t>> file_sizes;
};

// Owners: the cache, and each call and each window that uses it.
class SharedCheckpoint : public std::enable_shared_from_this<SharedCheckpoint> {
 public:
  using Located = absl::AnyInvocable<void(absl::Status)>;

  // `checkpoint` was opened with `fs` and `open`. `tasks` is the root's queue;
  // the files are closed there too, because that may take long. `index_bytes`
  // is the cache's sum, which includes this checkpoint until the last owner
  // lets it go: then it may wait for a thread that closes it.
  static std::shared_ptr<SharedCheckpoint> Make(
      std::shared_ptr<TaskQueue> tasks, std::unique_ptr<RootedFileSystem> fs,
      std::unique_ptr<Checkpoint> checkpoint, CheckpointState state,
      OpenOptions open, std::shared_ptr<std::atomic<uint64_t>> index_bytes);

  // A digest of the device, inode, size and times of the index file and of each
  // file that the index names, and of the mapping.
  const std::string& etag() const { return state_.etag; }
  const std::vector<std::optional<uint64_t>>& file_sizes() const {
    return state_.file_sizes;
  }
  // Whether the files are still in that state. Looks at each file. Returns the
  // error of a file that may no longer be read, or Cancelled once `stop` is
  // requested.
  absl::StatusOr<bool> IsCurrent(const std::stop_token& stop = {}) const;
  // The queue of the checkpoint's root; checkpoints below the same root share
  // it.
  const TaskQueue& tasks() const { return *tasks_; }
  // With which to open it again.
  const OpenOptions& open_options() const { return open_; }
  // Estimated memory of the index.
  uint64_t index_bytes() const { return index_bytes_; }

  // For reading. The results of Locate may be read only for located entries.
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  // For Load of entries that are located; Load does not change them.
  Checkpoint& mutable_checkpoint() { return *checkpoint_; }

  // Locates the payload of `entries` and calls `done`: at once if they are
  // already located, otherwise on a thread of the queue. Concurrent calls are
  // served together, in the first client's turn.
  void Locate(const std::string& client, std::vector<uint32_t> entries,
              Located done);

 private:
  struct LocateRequest {
    std::vector<uint32_t> entries;
    Located done;
  };

  SharedCheckpoint(std::shared_ptr<TaskQueue> tasks,
                   std::unique_ptr<RootedFileSystem> fs,
                   std::unique_ptr<Checkpoint> checkpoint,
                   CheckpointState state, OpenOptions open,
                   std::shared_ptr<std::atomic<uint64_t>> index_bytes);

  bool AreLocated(const std::vector<uint32_t>& entries) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ServeRequests();
  // One status for each request, in their order.
  std::vector<absl::Status> LocateAll(
      const std::vector<LocateRequest>& requests);

  // Owners: the root's RootThreads, and each checkpoint below the root.
  const std::shared_ptr<TaskQueue> tasks_;
  const std::unique_ptr<RootedFileSystem> fs_;
  const std::unique_ptr<Checkpoint> checkpoint_;
  const CheckpointState state_;
  const OpenOptions open_;
  const uint64_t index_bytes_;
  const std::shared_ptr<std::atomic<uint64_t>> all_index_bytes_;

  absl::Mutex mutex_;
  std::vector<bool> located_ ABSL_GUARDED_BY(mutex_);
  std::vector<LocateRequest> requests_ ABSL_GUARDED_BY(mutex_);
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
};

// `status`, the result of locating or reading, unless the checkpoint's index
// has changed meanwhile: then Unavailable. Looks at the disk.
absl::Status UnlessReplaced(const SharedCheckpoint& checkpoint,
                            const absl::Status& status);

}  // namespace dcp::server

#endif  // SERVER_READING_SHARED_CHECKPOINT_H_
