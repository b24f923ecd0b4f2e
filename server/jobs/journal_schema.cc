// SPDX-License-Identifier: Apache-2.0
// Makes the tables of the journal, and finds damage in them.
// Tested by tests/server/jobs/job_journal_test.cc.
#include "server/jobs/journal_schema.h"

#include "absl/strings/str_cat.h"

namespace dcp::server {
namespace {

// Each row for a job or a record has a digest of the values, which triggers
// update. A digest in a row does not show that a row is gone, so the table of
// totals has the row counts of both tables, with a digest. Other programs
// cannot add or remove rows: they do not have row_digest.
#define DIGEST_OF_JOB                                                 \
  "row_digest(number, id, client, request_id, kind, request, source," \
  " destination, memory_bytes, state, create_ns, start_ns, end_ns,"   \
  " cancel_requested, num_restarts, response, error)"
#define DIGEST_OF_RECORD "row_digest(rowid, job, record)"
#define DIGEST_OF_TOTALS "row_digest(num_jobs, num_records)"
#define SET_DIGEST_OF_JOB                          \
  " BEGIN UPDATE jobs SET digest = " DIGEST_OF_JOB \
  " WHERE number = NEW.number; END;"
#define COUNT_ROWS(name, event, column, change)                             \
  "CREATE TRIGGER " name " AFTER " event " BEGIN UPDATE totals SET " column \
  " = " column " " change "; UPDATE totals SET digest = " DIGEST_OF_TOTALS  \
  "; END;"

constexpr char kTables[] = R"(
  CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    request_id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    request BLOB NOT NULL,
    source TEXT NOT NULL,
    destination TEXT NOT NULL,
    memory_bytes INTEGER NOT NULL,
    state INTEGER NOT NULL,
    create_ns INTEGER NOT NULL,
    start_ns INTEGER,
    end_ns INTEGER,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    num_restarts INTEGER NOT NULL DEFAULT 0,
    response BLOB,
    error BLOB,
    digest INTEGER
  );
  CREATE TABLE records (
    job INTEGER NOT NULL,
    record BLOB NOT NULL,
    digest INTEGER
  );
  CREATE INDEX records_of_job ON records (job);
  CREATE TABLE totals (
    num_jobs INTEGER NOT NULL,
    num_records INTEGER NOT NULL,
    digest INTEGER
  );
  INSERT INTO totals (num_jobs, num_records) VALUES (0, 0);
)";

constexpr char kTriggers[] =
    "UPDATE totals SET digest = " DIGEST_OF_TOTALS
    ";"
    "CREATE TRIGGER job_added AFTER INSERT ON jobs" SET_DIGEST_OF_JOB
    "CREATE TRIGGER job_changed AFTER UPDATE ON jobs"
    " WHEN NEW.digest IS OLD.digest" SET_DIGEST_OF_JOB
    "CREATE TRIGGER record_added AFTER INSERT ON records BEGIN"
    " UPDATE records SET digest = " DIGEST_OF_RECORD
    " WHERE rowid = NEW.rowid; END;" COUNT_ROWS(
        "job_counted", "INSERT ON jobs", "num_jobs",
        "+ 1") COUNT_ROWS("job_removed", "DELETE ON jobs", "num_jobs", "- 1")
        COUNT_ROWS("record_counted", "INSERT ON records", "num_records", "+ 1")
            COUNT_ROWS("record_removed", "DELETE ON records", "num_records",
                       "- 1");

}  // namespace

const char* const kFindLossSql =
    "SELECT (SELECT COUNT(*) FROM jobs), (SELECT COUNT(*) FROM records),"
    " (SELECT num_jobs FROM totals WHERE digest IS " DIGEST_OF_TOTALS
    "), (SELECT num_records FROM totals)";

#undef COUNT_ROWS
#undef DIGEST_OF_TOTALS

const char* const kFindDamageSql =
    "SELECT number FROM jobs WHERE digest IS NOT " DIGEST_OF_JOB
    " UNION ALL SELECT job FROM records WHERE digest IS NOT " DIGEST_OF_RECORD
    " LIMIT 1";

#undef SET_DIGEST_OF_JOB
#undef DIGEST_OF_RECORD
#undef DIGEST_OF_JOB

std::string NewJournalSql() {
  return absl::StrCat("BEGIN;", kTables, kTriggers,
                      "PRAGMA application_id=", kJournalApplicationId,
                      "; PRAGMA user_version=", kJournalVersion, "; COMMIT");
}

}  // namespace dcp::server
