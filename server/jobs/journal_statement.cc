// SPDX-License-Identifier: Apache-2.0
// Turns SQLite's errors into statuses, and counts them.
// Tested by tests/server/jobs/job_journal_test.cc.
#include "server/jobs/journal_statement.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "proto/error_detail.h"

namespace dcp::server {
namespace {

std::atomic<uint64_t> num_errors = 0;

absl::Status SqliteError(int code, const std::string& text) {
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_SCHEMA:
    case SQLITE_MISMATCH:
      return absl::DataLossError(
          absl::StrCat(text, "; move the file away to begin without jobs"));
    case SQLITE_FULL:
    case SQLITE_TOOBIG:
    case SQLITE_NOMEM:
      return absl::ResourceExhaustedError(text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return absl::UnavailableError(
          absl::StrCat(text, "; does another server use it?"));
    // The server's fault; PERMISSION_DENIED would tell clients that they lack a
    // right.
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return absl::FailedPreconditionError(text);
    // The disk may recover.
    case SQLITE_IOERR:
    case SQLITE_INTERRUPT:
      return absl::UnavailableError(text);
    default:
      return absl::UnknownError(text);
  }
}

}  // namespace

uint64_t NumJournalErrors() { return num_errors.load(); }

absl::Status JournalError(const std::string& path, int code,
                          absl::string_view message) {
  ++num_errors;
  const std::string text = absl::StrCat("journal ", path, ": ", message);
  return WithReason(SqliteError(code, text), ErrorReason::JOURNAL_FAILED);
}

}  // namespace dcp::server
