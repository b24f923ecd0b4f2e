// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_journal.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/io/posix_error.h"
#include "proto/error_detail.h"
#include "server/jobs/journal_schema.h"
#include "server/jobs/journal_statement.h"
#include "server/jobs/row_digest.h"
#include "server/process/log_text.h"

namespace dcp::server {
namespace {

// "jobs.last" holds a number of this many digits and a newline. The size is
// fixed so that the file is written in place and needs no space on a full disk.
constexpr int kLastDigits = 20;

// Opens or creates a file that only this user may read, because requests
// contain paths that concern nobody else.
int OpenPrivate(const std::string& path) {
  const int fd =
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  // Another program may have created the file readable by others.
  if (fd >= 0) fchmod(fd, 0600);
  return fd;
}

}  // namespace

// A statement on the journal's database.
class JobJournal::Statement : public JournalStatement {
 public:
  Statement(JobJournal& journal, const char* sql)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(journal.mutex_)
      : JournalStatement(journal.database_, journal.path_, sql) {}
};

absl::StatusOr<std::unique_ptr<JobJournal>> JobJournal::Open(
    const std::string& state_dir) {
  if (mkdir(state_dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::FailedPreconditionError(absl::StrCat(
        "state directory ", state_dir, ": ", std::strerror(errno)));
  }
  std::unique_ptr<JobJournal> journal(
      new JobJournal(absl::StrCat(state_dir, "/jobs.db"),
                     absl::StrCat(state_dir, "/jobs.last")));
  absl::MutexLock lock(&journal->mutex_);
  // Creates the file here because SQLite gives other files the mode of the
  // database. This must happen before SQLite opens it, because closing the file
  // later would release SQLite's lock.
  const int file = OpenPrivate(journal->path_);
  if (file < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("journal ", journal->path_, ": ", std::strerror(errno)));
  }
  struct stat info = {};
  const int known = fstat(file, &info);
  close(file);
  if (known != 0) return PosixError(errno, journal->path_);
  journal->device_ = info.st_dev;
  journal->inode_ = info.st_ino;
  const int code = sqlite3_open_v2(
      journal->path_.c_str(), &journal->database_,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
      nullptr);
  if (code != SQLITE_OK) return journal->Error(code);
  const int defined = DefineRowDigest(journal->database_);
  if (defined != SQLITE_OK) return journal->Error(defined);
  DCP_RETURN_IF_ERROR(journal->Prepare());
  DCP_RETURN_IF_ERROR(journal->CheckLast());
  return journal;
}

JobJournal::~JobJournal() {
  absl::MutexLock lock(&mutex_);
  sqlite3_close(database_);
  if (last_file_ >= 0) close(last_file_);
}

absl::StatusOr<uint64_t> JobJournal::FreeBytes() const {
  struct stat info = {};
  if (stat(path_.c_str(), &info) != 0) {
    return WithReason(absl::UnavailableError(absl::StrCat(
                          "the journal ", path_, ": ", std::strerror(errno),
                          "; restore the state directory and start again")),
                      ErrorReason::JOURNAL_FAILED);
  }
  if (info.st_dev != device_ || info.st_ino != inode_) {
    return WithReason(
        absl::UnavailableError(absl::StrCat(
            "the journal ", path_,
            " was replaced while the server used it; start the server again")),
        ErrorReason::JOURNAL_FAILED);
  }
  struct statvfs disk = {};
  if (statvfs(path_.c_str(), &disk) != 0) return PosixError(errno, path_);
  return static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
}

absl::Status JobJournal::CheckUsable() const {
  DCP_ASSIGN_OR_RETURN(const uint64_t free_bytes, FreeBytes());
  if (free_bytes >= kMinJournalBytes) return absl::OkStatus();
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the disk of the journal ", path_, " has ", free_bytes,
          " free bytes; jobs begin when it has ", kMinJournalBytes)),
      ErrorReason::JOURNAL_FAILED);
}

absl::Status JobJournal::CheckLast() {
  Statement select(*this,
                   "SELECT seq FROM sqlite_sequence WHERE name = 'jobs'");
  const int64_t in_database = select.Step() ? select.Number() : 0;
  DCP_RETURN_IF_ERROR(select.status());
  last_file_ = OpenPrivate(last_path_);
  char text[kLastDigits + 1] = "";
  if (last_file_ < 0 || pread(last_file_, text, kLastDigits, 0) < 0) {
    return PosixError(errno, last_path_);
  }
  int64_t last = 0;
  if (absl::SimpleAtoi(text, &last) && last > in_database) {
    return absl::DataLossError(absl::StrCat(
        "journal ", path_, " is damaged: its last job is number ", in_database,
        ", but there were ", last, "; restore it, or remove ", last_path_,
        " to go on without them"));
  }
  return WriteLast(in_database);
}

absl::Status JobJournal::WriteLast(int64_t number) {
  const std::string text = absl::StrFormat("%0*d\n", kLastDigits, number);
  if (pwrite(last_file_, text.data(), text.size(), 0) ==
          static_cast<ssize_t>(text.size()) &&
      fdatasync(last_file_) == 0) {
    return absl::OkStatus();
  }
  return WithReason(PosixError(errno, last_path_), ErrorReason::JOURNAL_FAILED);
}

absl::Status JobJournal::Error(int code) const {
  return JournalError(path_, code, sqlite3_errmsg(database_));
}

absl::Status JobJournal::Execute(const char* sql) {
  const int code = sqlite3_exec(database_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<int64_t> JobJournal::Version() {
  Statement application(*this, "PRAGMA application_id");
  const int64_t id = application.Step() ? application.Number() : 0;
  DCP_RETURN_IF_ERROR(application.status());
  Statement version(*this, "PRAGMA user_version");
  const int64_t number = version.Step() ? version.Number() : 0;
  DCP_RETURN_IF_ERROR(version.status());
  Statement tables(*this, "SELECT COUNT(*) FROM sqlite_master");
  const bool empty = tables.Step() && tables.Number() == 0;
  DCP_RETURN_IF_ERROR(tables.status());
  if (id != kJournalApplicationId && !(id == 0 && number == 0 && empty)) {
    return absl::DataLossError(
        absl::StrCat("journal ", path_, " is a database of another program"));
  }
  return number;
}

absl::Status JobJournal::Prepare() {
  // The lock is held until the database is closed or the process is killed.
  DCP_RETURN_IF_ERROR(
      Execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=FULL"));
  DCP_ASSIGN_OR_RETURN(const int64_t version, Version());
  if (version > kJournalVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "journal ", path_, " has version ", version,
        ", written by a newer server; this one knows ", kJournalVersion));
  }
  if (version > 0 && version < kJournalVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "journal ", path_, " has version ", version,
        ", written by an older build; this server reads version ",
        kJournalVersion, ": let that build end its jobs, then remove ", path_,
        " and ", last_path_));
  }
  DCP_RETURN_IF_ERROR(
      Execute("PRAGMA journal_mode=WAL; BEGIN EXCLUSIVE; COMMIT"));
  if (version == 0) return MakeTables();
  DCP_RETURN_IF_ERROR(CheckPages());
  DCP_RETURN_IF_ERROR(CheckDigests());
  return CheckTotals();
}

absl::Status JobJournal::MakeTables() {
  absl::Status status = Execute(NewJournalSql().c_str());
  // An error inside the transaction leaves it open.
  if (!status.ok()) Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status JobJournal::CheckPages() {
  Statement check(*this, "PRAGMA quick_check(1)");
  const std::string result = check.Step() ? check.Bytes() : "";
  DCP_RETURN_IF_ERROR(check.status());
  if (result == "ok") return absl::OkStatus();
  return JournalError(path_, SQLITE_CORRUPT, result);
}

absl::Status JobJournal::CheckDigests() {
  Statement find(*this, kFindDamageSql);
  if (find.Step()) {
    return JournalError(path_, SQLITE_CORRUPT,
                        absl::StrCat("job ", find.Number(),
                                     " was changed since it was written"));
  }
  return find.status();
}

absl::Status JobJournal::CheckTotals() {
  Statement count(*this, kFindLossSql);
  if (!count.Step()) return count.status();
  const int64_t num_jobs = count.Number();
  const int64_t num_records = count.Number();
  const std::string jobs = count.Bytes();
  const std::string records = count.Bytes();
  if (jobs == absl::StrCat(num_jobs) && records == absl::StrCat(num_records)) {
    return absl::OkStatus();
  }
  return JournalError(
      path_, SQLITE_CORRUPT,
      absl::StrCat(
          "it has ", num_jobs, " jobs and ", num_records,
          " records of jobs, and there were ",
          jobs.empty() ? "others" : absl::StrCat(jobs, " and ", records)));
}

absl::StatusOr<std::vector<Job>> JobJournal::Jobs() {
  absl::MutexLock lock(&mutex_);
  Statement select(*this,
                   "SELECT number, id, client, request_id, kind, source,"
                   " destination, memory_bytes, state, create_ns, start_ns,"
                   " end_ns, cancel_requested, num_restarts FROM jobs"
                   " ORDER BY number");
  std::vector<Job> jobs;
  while (select.Step()) {
    Job& job = jobs.emplace_back();
    job.number = select.Number();
    job.id = select.Bytes();
    job.client = select.Bytes();
    job.request.request_id = select.Bytes();
    const int64_t kind = select.Number();
    job.request.source = select.Bytes();
    job.request.destination = select.Bytes();
    job.request.memory_bytes = static_cast<uint64_t>(select.Number());
    const int64_t state = select.Number();
    job.create_time = select.Time();
    job.start_time = select.Time();
    job.end_time = select.Time();
    job.cancel_requested = select.Number() != 0;
    job.num_restarts = static_cast<uint32_t>(select.Number());
    if (!tessera::v1::JobMetadata::Kind_IsValid(static_cast<int>(kind)) ||
        !tessera::v1::JobMetadata::State_IsValid(static_cast<int>(state))) {
      return JournalError(path_, SQLITE_CORRUPT,
                          absl::StrCat("job ", job.number, " has kind ", kind,
                                       ", state ", state));
    }
    job.request.kind = static_cast<JobKind>(kind);
    job.state = static_cast<JobState>(state);
  }
  DCP_RETURN_IF_ERROR(select.status());
  return jobs;
}

absl::Status JobJournal::Add(Job& job) {
  DCP_RETURN_IF_ERROR(CheckUsable());
  absl::MutexLock lock(&mutex_);
  const JobRequest& request = job.request;
  DCP_RETURN_IF_ERROR(
      Statement(*this,
                "INSERT INTO jobs (id, client, request_id, kind, request,"
                " source, destination, memory_bytes, state, create_ns)"
                " VALUES (?,?,?,?,?,?,?,?,?,?)")
          .BindText(job.id)
          .BindText(job.client)
          .BindText(request.request_id)
          .Bind(static_cast<int64_t>(request.kind))
          .BindBytes(request.bytes)
          .BindText(request.source)
          .BindText(request.destination)
          .Bind(static_cast<int64_t>(request.memory_bytes))
          .Bind(static_cast<int64_t>(job.state))
          .Bind(job.create_time)
          .Run());
  job.number = sqlite3_last_insert_rowid(database_);
  // The job is recorded even if this fails; only a loss of it would then go
  // unnoticed.
  const absl::Status written = WriteLast(job.number);
  if (!written.ok()) {
    DCP_LOG(kWarning) << "event=journal_failed error="
                      << LogText(written.message());
  }
  return absl::OkStatus();
}

absl::Status JobJournal::CountRestart(int64_t number) {
  absl::MutexLock lock(&mutex_);
  return Statement(*this,
                   "UPDATE jobs SET num_restarts = num_restarts + 1, state = ?"
                   " WHERE number = ?")
      .Bind(static_cast<int64_t>(JobMetadata::PENDING))
      .Bind(number)
      .Run();
}

absl::Status JobJournal::Start(int64_t number, absl::Time time) {
  absl::MutexLock lock(&mutex_);
  return Statement(*this,
                   "UPDATE jobs SET state = ?, start_ns = ? WHERE number = ?")
      .Bind(static_cast<int64_t>(JobMetadata::PLANNING))
      .Bind(time)
      .Bind(number)
      .Run();
}

absl::Status JobJournal::RequestCancel(int64_t number) {
  absl::MutexLock lock(&mutex_);
  return Statement(*this,
                   "UPDATE jobs SET cancel_requested = 1 WHERE number = ?")
      .Bind(number)
      .Run();
}

absl::Status JobJournal::End(int64_t number, JobState state, absl::Time time,
                             const JobOutcome& outcome) {
  absl::MutexLock lock(&mutex_);
  DCP_RETURN_IF_ERROR(Execute("BEGIN"));
  absl::Status status =
      Statement(*this,
                "UPDATE jobs SET state = ?, end_ns = ?, response = ?, error = ?"
                " WHERE number = ?")
          .Bind(static_cast<int64_t>(state))
          .Bind(time)
          .BindBytes(outcome.response)
          .BindBytes(outcome.error)
          .Bind(number)
          .Run();
  status.Update(
      Statement(*this, "DELETE FROM records WHERE job = ?").Bind(number).Run());
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok()) Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status JobJournal::Remove(int64_t number) {
  absl::MutexLock lock(&mutex_);
  return Statement(*this, "DELETE FROM jobs WHERE number = ?")
      .Bind(number)
      .Run();
}

absl::StatusOr<std::string> JobJournal::RequestBytes(int64_t number) {
  absl::MutexLock lock(&mutex_);
  Statement select(*this, "SELECT request FROM jobs WHERE number = ?");
  select.Bind(number);
  if (select.Step()) return select.Bytes();
  DCP_RETURN_IF_ERROR(select.status());
  return absl::NotFoundError(absl::StrCat("there is no job ", number));
}

absl::StatusOr<JobOutcome> JobJournal::Outcome(int64_t number) {
  absl::MutexLock lock(&mutex_);
  Statement select(*this, "SELECT response, error FROM jobs WHERE number = ?");
  select.Bind(number);
  if (select.Step()) {
    JobOutcome outcome;
    outcome.response = select.Bytes();
    outcome.error = select.Bytes();
    return outcome;
  }
  DCP_RETURN_IF_ERROR(select.status());
  return absl::NotFoundError(absl::StrCat("there is no job ", number));
}

absl::Status JobJournal::AppendRecord(int64_t number,
                                      absl::string_view record) {
  absl::MutexLock lock(&mutex_);
  return Statement(*this, "INSERT INTO records (job, record) VALUES (?, ?)")
      .Bind(number)
      .BindBytes(record)
      .Run();
}

absl::StatusOr<std::vector<std::string>> JobJournal::Records(int64_t number) {
  absl::MutexLock lock(&mutex_);
  Statement select(*this,
                   "SELECT record FROM records WHERE job = ? ORDER BY rowid");
  select.Bind(number);
  std::vector<std::string> records;
  while (select.Step()) records.push_back(select.Bytes());
  DCP_RETURN_IF_ERROR(select.status());
  return records;
}

}  // namespace dcp::server
