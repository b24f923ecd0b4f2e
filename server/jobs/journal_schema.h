// SPDX-License-Identifier: Apache-2.0
// The tables in the journal's database, and their version.
#ifndef SERVER_JOBS_JOURNAL_SCHEMA_H_
#define SERVER_JOBS_JOURNAL_SCHEMA_H_

#include <cstdint>
#include <string>

namespace dcp::server {

// The version of the tables and of the records in them; 0 is an empty database.
// No release has written versions 1 to 3.
inline constexpr int64_t kJournalVersion = 4;

// "TSRA": marks a database as a journal of this server.
inline constexpr int64_t kJournalApplicationId = 0x54535241;

// SQL that makes the tables in an empty database, in one transaction. It uses
// row_digest; see row_digest.h.
std::string NewJournalSql();

// Finds the number of a job with a row that does not match the digest.
extern const char* const kFindDamageSql;

// Counts the jobs and the records that are there, and then returns the counts
// in the journal: NULL if they do not match their digest.
extern const char* const kFindLossSql;

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOURNAL_SCHEMA_H_
