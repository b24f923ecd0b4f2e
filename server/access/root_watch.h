// SPDX-License-Identifier: Apache-2.0
// RootWatch: looks every few seconds at each directory that is a root of the
// server, with one thread for each, because a disk that hangs blocks the thread
// in the kernel. Metrics and health thus tell which root is gone, cannot be
// used, or does not answer. Object stores are not looked at: each request costs
// money, and only their clients know which names they may use. Thread-safe.
#ifndef SERVER_ACCESS_ROOT_WATCH_H_
#define SERVER_ACCESS_ROOT_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "dcp/base/thread.h"
#include "server/access/access.h"
#include "server/process/metrics.h"

namespace dcp::server {

struct RootCondition {
  absl::Status readable;  // why clients cannot read the root
  // The same, or why a root that clients may write cannot be written.
  absl::Status usable;
  std::optional<uint64_t> free_bytes;  // on the root's disk, where known
};

// A root to look at.
struct WatchedRoot {
  size_t number = 0;  // position among all of the server's roots, from 1
  std::string name;   // as the operator wrote it
  // The condition now; may block. Called by one thread.
  std::function<RootCondition()> look;
};

// Whether a file system is mounted at that directory. False if it is not known.
bool IsMountPoint(const std::string& path);

// Looks at a root. `was_mounted`: a file system was mounted there when the
// server started, so without one the root is gone.
RootCondition LookAtRoot(const Root& root, bool was_mounted);

// The roots of the server that are directories. Looks at the disk.
std::vector<WatchedRoot> DirectoryRoots(const Client& server);

class RootWatch {
 public:
  struct Times {
    absl::Duration interval;  // between two looks
    absl::Duration timeout;   // a look that takes longer means that it hangs
  };
  using Changed =
      std::function<void(const WatchedRoot& root, const RootCondition& now)>;

  // Calls `changed`, on a thread of this object, when a root can no longer be
  // read or used, and when it can be again. Roots are taken for usable until
  // they were looked at.
  static absl::StatusOr<std::unique_ptr<RootWatch>> Start(
      std::vector<WatchedRoot> roots, const Times& times, Changed changed);
  // Waits for looks in progress.
  ~RootWatch();
  RootWatch(const RootWatch&) = delete;
  RootWatch& operator=(const RootWatch&) = delete;

  // Afterwards `changed` is not called. Waits for no disk. Called once at most.
  void Stop();

  const std::vector<WatchedRoot>& roots() const { return roots_; }
  // The condition of the root with that index. Does not look at the disk.
  RootCondition Condition(size_t index) const;

 private:
  struct State {
    RootCondition last;
    // When the look in progress began, a time of SteadyNow.
    std::optional<absl::Duration> looks_since;
    // From the condition that was last passed to `changed`.
    bool was_readable = true;
    bool was_usable = true;
  };

  RootWatch(std::vector<WatchedRoot> roots, const Times& times,
            Changed changed);
  absl::Status StartThreads();

  // The bodies of the threads.
  void Look(size_t index);
  void ReportNews();

  RootCondition ConditionAt(size_t index, absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next root with news, which from then on counts as told; the number of
  // roots if there is none.
  size_t TakeNews(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When a look in progress takes too long, unless it does already.
  absl::Duration NextTimeout(absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<WatchedRoot> roots_;
  const Times times_;
  const Changed changed_;
  mutable absl::Mutex mutex_;
  SteadyCondVar ends_;  // for Look
  SteadyCondVar news_;  // for ReportNews
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Thread> teller_;
  std::vector<Thread> lookers_;
};

// Adds tessera_root_up and tessera_root_free_bytes for each root of the watch,
// which must outlive the handles.
std::vector<std::shared_ptr<void>> AddRootGauges(const RootWatch& watch,
                                                 Metrics& metrics);

}  // namespace dcp::server

#endif  // SERVER_ACCESS_ROOT_WATCH_H_
