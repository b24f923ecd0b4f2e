// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/row_digest.h"

#include <sqlite3.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

class RowDigestTest : public ::testing::Test {
 protected:
  RowDigestTest() {
    EXPECT_EQ(sqlite3_open(":memory:", &database_), SQLITE_OK);
    EXPECT_EQ(DefineRowDigest(database_), SQLITE_OK);
  }
  ~RowDigestTest() override { sqlite3_close(database_); }

  int64_t DigestOf(const std::string& values) {
    const std::string sql = absl::StrCat("SELECT row_digest(", values, ")");
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(
        sqlite3_prepare_v2(database_, sql.c_str(), -1, &statement, nullptr),
        SQLITE_OK)
        << sqlite3_errmsg(database_);
    EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW);
    const int64_t digest = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return digest;
  }

  sqlite3* database_ = nullptr;
};

TEST_F(RowDigestTest, IsOfTypesLengthsAndBytes) {
  EXPECT_EQ(DigestOf("1, 'a', x'00ff', NULL"),
            DigestOf("1, 'a', x'00ff', NULL"));
  EXPECT_NE(DigestOf("1"), DigestOf("2"));
  EXPECT_NE(DigestOf("1"), DigestOf("'1'"));
  EXPECT_NE(DigestOf("'a'"), DigestOf("x'61'"));
  EXPECT_NE(DigestOf("NULL"), DigestOf("''"));
  EXPECT_NE(DigestOf("'ab', 'c'"), DigestOf("'a', 'bc'"));
  EXPECT_NE(DigestOf("1, 2"), DigestOf("2, 1"));
  EXPECT_NE(DigestOf("1"), DigestOf("1, NULL"));
  EXPECT_NE(DigestOf("1"), DigestOf("1 + (1 << 40)"));
}

}  // namespace
}  // namespace dcp::server
