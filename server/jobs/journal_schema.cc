// Tested by tests/server/jobs/job_journal_test.cc.
#include "server/jobs/journal_schema.h"

#include "absl/strings/str_cat.h"

namespace dcp::server {
namespace {

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
    error BLOB
  );
  CREATE TABLE records (
    job INTEGER NOT NULL,
    record BLOB NOT NULL
  );
  CREATE INDEX records_of_job ON records (job);
)";

// Version 2 added a digest of the values of each row, which triggers update.
#define DIGEST_OF_JOB                                                 \
  "row_digest(number, id, client, request_id, kind, request, source," \
  " destination, memory_bytes, state, create_ns, start_ns, end_ns,"   \
  " cancel_requested, num_restarts, response, error)"
#define DIGEST_OF_RECORD "row_digest(rowid, job, record)"
#define SET_DIGEST_OF_JOB                          \
  " BEGIN UPDATE jobs SET digest = " DIGEST_OF_JOB \
  " WHERE number = NEW.number; END;"

constexpr char kDigests[] =
    "ALTER TABLE jobs ADD COLUMN digest INTEGER;"
    "UPDATE jobs SET digest = " DIGEST_OF_JOB
    ";"
    "CREATE TRIGGER job_added AFTER INSERT ON jobs" SET_DIGEST_OF_JOB
    "CREATE TRIGGER job_changed AFTER UPDATE ON jobs"
    " WHEN NEW.digest IS OLD.digest" SET_DIGEST_OF_JOB
    "ALTER TABLE records ADD COLUMN digest INTEGER;"
    "UPDATE records SET digest = " DIGEST_OF_RECORD
    ";"
    "CREATE TRIGGER record_added AFTER INSERT ON records BEGIN"
    " UPDATE records SET digest = " DIGEST_OF_RECORD
    " WHERE rowid = NEW.rowid; END;";

}  // namespace

const char* const kFindDamageSql =
    "SELECT number FROM jobs WHERE digest IS NOT " DIGEST_OF_JOB
    " UNION ALL SELECT job FROM records WHERE digest IS NOT " DIGEST_OF_RECORD
    " LIMIT 1";

#undef SET_DIGEST_OF_JOB
#undef DIGEST_OF_RECORD
#undef DIGEST_OF_JOB

std::string JournalUpgradeSql(int64_t version) {
  return absl::StrCat("BEGIN;", version == 0 ? kTables : "", kDigests,
                      "PRAGMA application_id=", kJournalApplicationId,
                      "; PRAGMA user_version=", kJournalVersion, "; COMMIT");
}

}  // namespace dcp::server
