// SPDX-License-Identifier: Apache-2.0
// JobJournal: records jobs, their outcomes and the progress of unfinished jobs
// in an SQLite database, "jobs.db" in the server's state directory, which it
// locks. SQLite silently drops the end of a damaged write-ahead log, and
// accepts an empty database as valid. The file "jobs.last" next to it therefore
// holds the number of the newest job, and each row has a digest of the values.
// Everything that a method has written when it returns survives a kill and a
// power failure. Thread-safe; methods block for a write to the disk, some
// milliseconds.
#ifndef SERVER_JOBS_JOB_JOURNAL_H_
#define SERVER_JOBS_JOB_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/jobs/job.h"

struct sqlite3;

namespace dcp::server {

// With less space on the disk, no job is accepted or begun: SQLite needs some
// pages for each.
inline constexpr uint64_t kMinJournalBytes = uint64_t{1} << 20;

class JobJournal {
 public:
  // Creates the directory and the database if they are missing, accessible only
  // for this user. FailedPrecondition for a journal with another version,
  // Unavailable for one that another server uses, DataLoss for one that is
  // damaged or lacks jobs that were added to it.
  static absl::StatusOr<std::unique_ptr<JobJournal>> Open(
      const std::string& state_dir);
  ~JobJournal();
  JobJournal(const JobJournal&) = delete;
  JobJournal& operator=(const JobJournal&) = delete;

  // The free bytes on the database's disk. Unavailable if the database is no
  // longer at its path, because somebody removed it or the directory: data
  // written then is lost with the process. Does not wait for a method that
  // writes.
  absl::StatusOr<uint64_t> FreeBytes() const;

  // OK if jobs can be recorded: the error of FreeBytes, or ResourceExhausted
  // with less than kMinJournalBytes.
  absl::Status CheckUsable() const;

  // All jobs in the order of creation, without the bytes of their requests.
  absl::StatusOr<std::vector<Job>> Jobs();

  // Adds the job and sets its number.
  absl::Status Add(Job& job);
  // Counts that the server found the job unfinished when it started.
  absl::Status CountRestart(int64_t number);
  absl::Status Start(int64_t number, absl::Time time);
  absl::Status RequestCancel(int64_t number);
  // Also deletes the records of the job's progress.
  absl::Status End(int64_t number, JobState state, absl::Time time,
                   const JobOutcome& outcome);
  absl::Status Remove(int64_t number);

  // NotFound if the job does not exist.
  absl::StatusOr<std::string> RequestBytes(int64_t number);
  absl::StatusOr<JobOutcome> Outcome(int64_t number);

  // Records for a job's next run; see dcp/checkpoint/convert/convert_journal.h.
  absl::Status AppendRecord(int64_t number, absl::string_view record);
  absl::StatusOr<std::vector<std::string>> Records(int64_t number);

 private:
  class Statement;

  JobJournal(std::string path, std::string last_path)
      : path_(std::move(path)), last_path_(std::move(last_path)) {}

  // Opens or creates "jobs.last" and compares the number there with the newest
  // job.
  absl::Status CheckLast() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteLast(int64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status Prepare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeTables() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All read the whole database.
  absl::Status CheckPages() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckDigests() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckTotals() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Execute(const char* sql) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Error(int code) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int64_t> Version() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const std::string last_path_;
  // The database as it was opened.
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  absl::Mutex mutex_;
  sqlite3* database_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int last_file_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_JOURNAL_H_
