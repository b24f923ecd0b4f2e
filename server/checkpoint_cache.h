// CheckpointCache: checkpoints that are open, shared by the calls that read
// them, as far as their clients may read the same: every file was opened with
// rights that all of them have. One that was replaced or written to on disk is
// seen by the next call: each looks at all of its files again. Bounded in
// number and by the memory of the indices; the one that was not used for
// longest goes first. Thread-safe.
#ifndef SERVER_CHECKPOINT_CACHE_H_
#define SERVER_CHECKPOINT_CACHE_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/io/file_system.h"
#include "server/access.h"
#include "server/messages.h"
#include "server/root_threads.h"
#include "server/rooted_file_system.h"
#include "server/task_queue.h"
#include "server/timed_answer.h"

namespace dcp::server {

// The files of an open checkpoint, as they are.
struct CheckpointState {
  std::string etag;
  // Of each file that the index names, in its order; absent where it is not
  // there.
  std::vector<std::optional<uint64_t>> file_sizes;
};

// A checkpoint and which state of its files it is. Owners: the cache, and each
// call and each window that uses it.
class SharedCheckpoint : public std::enable_shared_from_this<SharedCheckpoint> {
 public:
  using Located = absl::AnyInvocable<void(absl::Status)>;

  // `fs` is what `checkpoint` was opened with; `tasks` are those of its root,
  // where its files are closed, too: that may take a while.
  static std::shared_ptr<SharedCheckpoint> Make(
      std::shared_ptr<TaskQueue> tasks, std::unique_ptr<RootedFileSystem> fs,
      std::unique_ptr<Checkpoint> checkpoint, CheckpointState state,
      int64_t rank, std::shared_ptr<std::atomic<uint64_t>> index_bytes);
  ~SharedCheckpoint();

  // A digest of device, inode, size and time of each file: of the index, and of
  // those that the index names.
  const std::string& etag() const { return state_.etag; }
  const std::vector<std::optional<uint64_t>>& file_sizes() const {
    return state_.file_sizes;
  }
  // Whether that is still so. Looks at each file; an error is that of a file
  // that may not be read any more, or Cancelled once `stop` is requested.
  absl::StatusOr<bool> IsCurrent(const std::stop_token& stop = {}) const;
  // Those of its root: what belongs to the same root has the same.
  const TaskQueue& tasks() const { return *tasks_; }
  int64_t rank() const { return rank_; }
  // An estimate of the memory of the index.
  uint64_t index_bytes() const { return index_bytes_; }

  // To be read; what Locate finds is there for the entries that it was asked.
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  // For Load of entries that are located: it changes nothing then.
  Checkpoint& mutable_checkpoint() { return *checkpoint_; }

  // Finds the payload of `entries` and calls `done`, at once when that is known
  // already, else on a thread of the queue. Calls that come together are served
  // together.
  void Locate(std::vector<uint32_t> entries, Located done);

 private:
  struct Wish {
    std::vector<uint32_t> entries;
    Located done;
  };

  SharedCheckpoint(std::shared_ptr<TaskQueue> tasks,
                   std::unique_ptr<RootedFileSystem> fs,
                   std::unique_ptr<Checkpoint> checkpoint,
                   CheckpointState state, int64_t rank,
                   std::shared_ptr<std::atomic<uint64_t>> index_bytes);

  bool AreLocated(const std::vector<uint32_t>& entries) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ServeWishes();
  // Of each, in their order.
  std::vector<absl::Status> LocateAll(const std::vector<Wish>& wishes);

  // Owners: its RootThreads, and each checkpoint below the root.
  const std::shared_ptr<TaskQueue> tasks_;
  const std::unique_ptr<RootedFileSystem> fs_;
  const std::unique_ptr<Checkpoint> checkpoint_;
  const CheckpointState state_;
  const int64_t rank_;
  const uint64_t index_bytes_;
  const std::shared_ptr<std::atomic<uint64_t>> all_index_bytes_;

  absl::Mutex mutex_;
  std::vector<bool> located_ ABSL_GUARDED_BY(mutex_);
  std::vector<Wish> wishes_ ABSL_GUARDED_BY(mutex_);
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
};

struct CheckpointCacheLimits {
  // Open files and descriptors of as many checkpoints.
  size_t num_checkpoints = 16;
  // A checkpoint of a million chunks needs some 300 MiB.
  uint64_t index_bytes = uint64_t{512} << 20;
  // Descriptors that idle checkpoints may hold: far below the usual limit of a
  // daemon's open files, 65536 or more.
  size_t num_files = 4096;
  // For a file system to let a checkpoint be opened.
  absl::Duration disk_timeout = absl::Minutes(2);
};

class CheckpointCache {
 public:
  using Opened = absl::AnyInvocable<void(
      absl::StatusOr<std::shared_ptr<SharedCheckpoint>>)>;

  // All must outlive this; but the threads are stopped before this is
  // destroyed.
  CheckpointCache(FileSystem& fs, RootThreads& threads,
                  const CheckpointCacheLimits& limits)
      : fs_(fs), threads_(threads), limits_(limits) {}

  // Opens the checkpoint with the rights of `client`, which all of its files
  // must be within, and calls `opened` on a thread of the path's root; or at
  // once with an error; or on a thread of gRPC, with Unavailable and the root,
  // when that has taken the timeout; or with Cancelled on the thread that
  // requests `stop`, which says that the client is gone. Errors are those of
  // Client::CheckRead and Checkpoint::Open, and carry the path.
  //
  // What several clients wait for is opened until the last of them is gone.
  // One that was told of the timeout is not: it will ask again.
  void Open(const Client& client, const SourceSpec& source,
            std::stop_token stop, Opened opened);

  size_t num_open() const;

 private:
  struct Key {
    std::string path;
    int64_t rank = -1;
    std::string reach;  // of the clients who share it

    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.path, key.rank, key.reach);
    }
  };

  using Answer = TimedAnswer<absl::StatusOr<std::shared_ptr<SharedCheckpoint>>>;
  struct Waiter;
  struct Opening;
  // Owners: the task of the call, and what it waits for.
  using WaiterPtr = std::shared_ptr<Waiter>;
  // Owners: who opens, and those who wait.
  using OpeningPtr = std::shared_ptr<Opening>;

  void OpenOnThread(const WaiterPtr& waiter);
  // Serves all who wait, one after the other.
  void Serve(const Key& key, const OpeningPtr& opening);
  // The next of them, with the stop of what is opened for it; null when nobody
  // waits any more, and then nobody joins.
  WaiterPtr NextOf(const Key& key, const OpeningPtr& opening,
                   std::stop_token& stop);
  void EndJoining(const Key& key, const OpeningPtr& opening)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The client is gone.
  void Leave(Waiter& waiter);
  // What is open, which may be of another state of the files; or null.
  std::shared_ptr<SharedCheckpoint> Kept(const Key& key);
  absl::StatusOr<std::shared_ptr<SharedCheckpoint>> Find(
      const Client& client, const Key& key, const std::stop_token& stop);
  absl::StatusOr<std::shared_ptr<SharedCheckpoint>> OpenAnew(
      const Client& client, const Key& key, const std::stop_token& stop);
  absl::Status Keep(const Key& key, std::shared_ptr<SharedCheckpoint> opened);

  FileSystem& fs_;
  RootThreads& threads_;
  const CheckpointCacheLimits limits_;
  // Of all that are open, kept or not. Owners: this and each of them.
  const std::shared_ptr<std::atomic<uint64_t>> index_bytes_ =
      std::make_shared<std::atomic<uint64_t>>(0);

  mutable absl::Mutex mutex_;
  // The last that was used is the first.
  std::list<std::pair<Key, std::shared_ptr<SharedCheckpoint>>> kept_
      ABSL_GUARDED_BY(mutex_);
  // What a thread is opening, as long as others may join.
  absl::flat_hash_map<Key, OpeningPtr> opening_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_CHECKPOINT_CACHE_H_
