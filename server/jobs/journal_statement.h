// SPDX-License-Identifier: Apache-2.0
// JournalStatement: builds, runs and reads a statement on the journal's
// database. Keeps the first error. Used under the journal's lock.
#ifndef SERVER_JOBS_JOURNAL_STATEMENT_H_
#define SERVER_JOBS_JOURNAL_STATEMENT_H_

#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace dcp::server {

// The status for one of SQLite's codes, with the reason JOURNAL_FAILED.
absl::Status JournalError(const std::string& path, int code,
                          absl::string_view message);

// How often JournalError was called in this process, by any thread.
uint64_t NumJournalErrors();

class JournalStatement {
 public:
  // `path` is the database's, for errors. Both outlive this.
  JournalStatement(sqlite3* database, const std::string& path, const char* sql)
      : database_(database), path_(path) {
    code_ = sqlite3_prepare_v2(database_, sql, -1, &statement_, nullptr);
  }
  ~JournalStatement() { sqlite3_finalize(statement_); }
  JournalStatement(const JournalStatement&) = delete;
  JournalStatement& operator=(const JournalStatement&) = delete;

  JournalStatement& Bind(int64_t number) {
    Note(sqlite3_bind_int64(statement_, ++parameter_, number));
    return *this;
  }
  JournalStatement& Bind(absl::Time time) {
    if (time != absl::InfinitePast()) return Bind(absl::ToUnixNanos(time));
    Note(sqlite3_bind_null(statement_, ++parameter_));
    return *this;
  }
  // `text` must outlive the statement.
  JournalStatement& BindText(absl::string_view text) {
    Note(sqlite3_bind_text64(statement_, ++parameter_, text.data(), text.size(),
                             SQLITE_STATIC, SQLITE_UTF8));
    return *this;
  }
  JournalStatement& BindBytes(absl::string_view bytes) {
    Note(sqlite3_bind_blob64(statement_, ++parameter_, bytes.data(),
                             bytes.size(), SQLITE_STATIC));
    return *this;
  }

  // Returns whether there is a row.
  bool Step() {
    if (code_ != SQLITE_OK && code_ != SQLITE_ROW) return false;
    code_ = sqlite3_step(statement_);
    column_ = 0;
    return code_ == SQLITE_ROW;
  }
  absl::Status Run() {
    while (Step()) {
    }
    return status();
  }
  absl::Status status() const {
    if (code_ == SQLITE_OK || code_ == SQLITE_DONE || code_ == SQLITE_ROW) {
      return absl::OkStatus();
    }
    return JournalError(path_, code_, sqlite3_errmsg(database_));
  }

  // Each of these reads the next column of the row.
  int64_t Number() { return sqlite3_column_int64(statement_, column_++); }
  absl::Time Time() {
    if (sqlite3_column_type(statement_, column_) == SQLITE_NULL) {
      ++column_;
      return absl::InfinitePast();
    }
    return absl::FromUnixNanos(Number());
  }
  std::string Bytes() {
    const auto* data =
        static_cast<const char*>(sqlite3_column_blob(statement_, column_));
    const int size = sqlite3_column_bytes(statement_, column_++);
    return data == nullptr ? std::string()
                           : std::string(data, static_cast<size_t>(size));
  }

 private:
  void Note(int code) {
    if (code_ == SQLITE_OK) code_ = code;
  }

  sqlite3* const database_;
  const std::string& path_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
  int parameter_ = 0;
  int column_ = 0;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOURNAL_STATEMENT_H_
