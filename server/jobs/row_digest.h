// SPDX-License-Identifier: Apache-2.0
// Digests of rows in SQLite. The check in SQLite detects a damaged tree, but
// not a damaged value in an intact one.
#ifndef SERVER_JOBS_ROW_DIGEST_H_
#define SERVER_JOBS_ROW_DIGEST_H_

struct sqlite3;

namespace dcp::server {

// Defines the SQL function row_digest(VALUE, ...) for this connection: the
// XXH3-64 of the arguments' types, lengths and bytes, as an INTEGER. Returns
// SQLite's result code. Called on the connection's thread.
int DefineRowDigest(sqlite3* database);

}  // namespace dcp::server

#endif  // SERVER_JOBS_ROW_DIGEST_H_
