// SPDX-License-Identifier: Apache-2.0
// CheckpointCache: open checkpoints, shared by the calls that read them. Only
// clients that may read the same files share a checkpoint, because the files
// were opened with one client's rights, and only calls that ask for the same
// mapping. Each call looks at all files of the checkpoint, and at the
// config.json that a mapping may have taken numbers from, so it notices when
// one was replaced or written to. The cache limits the open checkpoints, their
// files and the memory for their indices; the least recently used checkpoint is
// closed first. Thread-safe.
#ifndef SERVER_READING_CHECKPOINT_CACHE_H_
#define SERVER_READING_CHECKPOINT_CACHE_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
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
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"
#include "proto/messages/request_messages.h"
#include "server/access/access.h"
#include "server/access/admission.h"
#include "server/access/root_threads.h"
#include "server/memory/call_memory.h"
#include "server/memory/memory_budget.h"
#include "server/reading/shared_checkpoint.h"
#include "server/reading/timed_answer.h"

namespace dcp::server {

struct CheckpointCacheLimits {
  // Each keeps open files, and so descriptors.
  size_t num_checkpoints = 16;
  // A checkpoint with a million chunks needs some 300 MiB.
  uint64_t index_bytes = uint64_t{512} << 20;
  // Descriptors that idle checkpoints may hold. Far below a daemon's usual
  // limit for open files, 65536 or more.
  size_t num_files = 4096;
  // The most time that opening a checkpoint may take.
  absl::Duration disk_timeout = absl::Minutes(2);
};

class CheckpointCache {
 public:
  using Opened = absl::AnyInvocable<void(
      absl::StatusOr<std::shared_ptr<SharedCheckpoint>>)>;

  // All must outlive this, except that both kinds of threads must be stopped
  // before this is destroyed. Checkpoints are opened through mappings by
  // `map_threads`, because strangers' rules may take long.
  CheckpointCache(FileSystem& fs, RootThreads& threads,
                  RootThreads& map_threads, MemoryBudget& budget,
                  const CheckpointCacheLimits& limits)
      : fs_(fs),
        threads_(threads),
        map_threads_(map_threads),
        budget_(budget),
        limits_(limits) {}

  // Opens the checkpoint with the rights of the caller's client, which must
  // cover all files, and calls `opened` once:
  // - on a thread of the path's root, with the result;
  // - before this returns, with an error;
  // - on a thread of gRPC, with Unavailable and the root, after the timeout;
  // - on the thread that requests `stop` (the client is gone), with Cancelled.
  //   Errors are those of Client::CheckRead, Checkpoint::Open and MapFromProto,
  //   and name the path. Opening through a mapping compares the tensors that
  //   the mapping declares equal (CheckTies), in the caller's memory; the
  //   errors of CallMemoryRequest say that there is none.
  //
  // Opening continues until the last client that waits for the checkpoint is
  // gone. A client that was told of the timeout is not gone: it will ask again.
  void Open(const Admission::Caller& caller, const SourceSpec& source,
            std::stop_token stop, Opened opened);

  size_t num_open() const;

 private:
  struct Key {
    std::string path;
    int64_t rank = -1;
    DialectOptions dialect;
    std::string map;    // StableBytes of the mapping; empty: none
    std::string reach;  // the same for all clients that share it

    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.path, key.rank, key.dialect, key.map,
                        key.reach);
    }
  };

  using Answer = TimedAnswer<absl::StatusOr<std::shared_ptr<SharedCheckpoint>>>;
  struct Waiter;
  struct Opening;
  // Owners: the task of the call, and the Opening that it waits for.
  using WaiterPtr = std::shared_ptr<Waiter>;
  // Owners: the thread that opens, the map opening_, and the waiters.
  using OpeningPtr = std::shared_ptr<Opening>;

  void OpenOnThread(const WaiterPtr& waiter);
  // Answers all waiters, one after the other.
  void Serve(const Key& key, const OpeningPtr& opening);
  // The next waiter, with the stop token for the opening on behalf of that
  // waiter. If there is none, returns null, and no further waiter can join.
  WaiterPtr NextWaiter(const Key& key, const OpeningPtr& opening,
                       std::stop_token& stop);
  void EndJoining(const Key& key, const OpeningPtr& opening)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called when the client is gone.
  void Leave(Waiter& waiter);
  // The open checkpoint, or null. The files may have changed since.
  std::shared_ptr<SharedCheckpoint> FindOpen(const Key& key);
  absl::StatusOr<std::shared_ptr<SharedCheckpoint>> Find(
      const Waiter& waiter, const Key& key, const std::stop_token& stop);
  absl::StatusOr<std::shared_ptr<SharedCheckpoint>> OpenFresh(
      const Waiter& waiter, const Key& key, const std::stop_token& stop);
  // Waits for the memory that the mapping takes.
  absl::StatusOr<CallMemory> MapMemory(const Waiter& waiter);
  absl::Status Keep(const Key& key, std::shared_ptr<SharedCheckpoint> opened);

  FileSystem& fs_;
  RootThreads& threads_;
  RootThreads& map_threads_;
  MemoryBudget& budget_;
  const CheckpointCacheLimits limits_;
  // Sum over all open checkpoints, kept or not. Owners: this and each
  // checkpoint.
  const std::shared_ptr<std::atomic<uint64_t>> index_bytes_ =
      std::make_shared<std::atomic<uint64_t>>(0);

  mutable absl::Mutex mutex_;
  // The most recently used first.
  std::list<std::pair<Key, std::shared_ptr<SharedCheckpoint>>> kept_
      ABSL_GUARDED_BY(mutex_);
  // Checkpoints that a thread is opening, as long as other calls may join.
  absl::flat_hash_map<Key, OpeningPtr> opening_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_READING_CHECKPOINT_CACHE_H_
