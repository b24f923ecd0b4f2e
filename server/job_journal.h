// JobJournal: jobs, how they ended, and how far the unfinished ones have come,
// in an SQLite database "jobs.db" of the server's state directory, which it
// locks. SQLite drops the end of a damaged write-ahead log without a word, and
// a database that is empty is a sound one: "jobs.last", next to it, has the
// number of the newest job. Each row has a digest of its values. What a method
// has written when it returns survives a kill and a loss of power. Thread-safe;
// methods block for a write to the disk, some milliseconds.
#ifndef SERVER_JOB_JOURNAL_H_
#define SERVER_JOB_JOURNAL_H_

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
#include "server/job.h"

struct sqlite3;

namespace dcp::server {

class JobJournal {
 public:
  // Makes directory and database where they are missing, for this user only.
  // FailedPrecondition for a journal that a newer server has written,
  // Unavailable for one that another server uses, DataLoss for one that is
  // damaged or does not know of jobs that were added to it.
  static absl::StatusOr<std::unique_ptr<JobJournal>> Open(
      const std::string& state_dir);
  ~JobJournal();
  JobJournal(const JobJournal&) = delete;
  JobJournal& operator=(const JobJournal&) = delete;

  // All jobs in order of creation, without the bytes of their requests.
  absl::StatusOr<std::vector<Job>> Jobs();

  // Gives the job its number.
  absl::Status Add(Job& job);
  // At its start the server found it unfinished.
  absl::Status CountRestart(int64_t number);
  absl::Status Start(int64_t number, absl::Time time);
  absl::Status RequestCancel(int64_t number);
  // What is known of its way is dropped.
  absl::Status End(int64_t number, JobState state, absl::Time time,
                   const JobOutcome& outcome);
  absl::Status Remove(int64_t number);

  // NotFound where there is no such job.
  absl::StatusOr<std::string> RequestBytes(int64_t number);
  absl::StatusOr<JobOutcome> Outcome(int64_t number);

  // What a job tells its next run: see dcp/checkpoint/convert_log.h.
  absl::Status AppendRecord(int64_t number, absl::string_view record);
  absl::StatusOr<std::vector<std::string>> Records(int64_t number);

 private:
  class Statement;

  JobJournal(std::string path, std::string last_path)
      : path_(std::move(path)), last_path_(std::move(last_path)) {}

  // Compares with the newest job of "jobs.last", which it makes or opens.
  absl::Status CheckLast() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteLast(int64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status Prepare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From an older version, 0 for an empty database.
  absl::Status Upgrade(int64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Both read the whole database.
  absl::Status CheckPages() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckDigests() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Execute(const char* sql) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Error(int code) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int64_t> Version() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const std::string last_path_;
  absl::Mutex mutex_;
  sqlite3* database_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int last_file_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace dcp::server

#endif  // SERVER_JOB_JOURNAL_H_
