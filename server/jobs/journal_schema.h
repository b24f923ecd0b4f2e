// SPDX-License-Identifier: Apache-2.0
// The tables of the journal's database, and their version.
#ifndef SERVER_JOBS_JOURNAL_SCHEMA_H_
#define SERVER_JOBS_JOURNAL_SCHEMA_H_

#include <cstdint>
#include <string>

namespace dcp::server {

// The newest version; version 0 is an empty database.
inline constexpr int64_t kJournalVersion = 3;
// From this version on, rows have digests.
inline constexpr int64_t kDigestsVersion = 2;

// "TSRA": marks a database as a journal of this server.
inline constexpr int64_t kJournalApplicationId = 0x54535241;

// SQL that brings a database of that version to the newest, in one transaction.
// It uses row_digest; see row_digest.h.
std::string JournalUpgradeSql(int64_t version);

// Finds the number of a job with a row that does not match its digest.
extern const char* const kFindDamageSql;

// Counts the jobs and the records that are there, and then how many the journal
// says there are: NULL if its own numbers do not match their digest.
extern const char* const kFindLossSql;

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOURNAL_SCHEMA_H_
