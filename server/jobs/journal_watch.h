// SPDX-License-Identifier: Apache-2.0
// JournalWatch: looks every few seconds whether jobs can be recorded: whether
// the journal's file is still at the path, and whether the disk has space. So
// the server knows about a removed state directory or a full disk before a job
// fails. Thread-safe.
#ifndef SERVER_JOBS_JOURNAL_WATCH_H_
#define SERVER_JOBS_JOURNAL_WATCH_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "dcp/base/thread.h"
#include "server/jobs/job_journal.h"

namespace dcp::server {

class JournalWatch {
 public:
  // Looks once, and then at each `interval` on a thread of this object. Calls
  // `changed`, on the thread that looks, with the error or OK: at the first
  // look, and when an error begins or ends. `journal` must outlive this.
  static absl::StatusOr<std::unique_ptr<JournalWatch>> Start(
      const JobJournal& journal, absl::Duration interval,
      std::function<void(const absl::Status&)> changed);
  ~JournalWatch();
  JournalWatch(const JournalWatch&) = delete;
  JournalWatch& operator=(const JournalWatch&) = delete;

 private:
  JournalWatch(const JobJournal& journal, absl::Duration interval,
               std::function<void(const absl::Status&)> changed);
  void Look();
  void Run();

  const JobJournal& journal_;
  const absl::Duration interval_;
  const std::function<void(const absl::Status&)> changed_;
  std::optional<absl::StatusCode> last_;  // used by the thread that looks
  absl::Mutex mutex_;
  SteadyCondVar ends_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Thread> thread_;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOURNAL_WATCH_H_
