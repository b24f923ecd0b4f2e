// SPDX-License-Identifier: Apache-2.0

#include "server/access/page_token.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

TEST(PageTokens, TokensAreValidForOneQuery) {
  const PageTokens tokens;
  for (const uint64_t next : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
    EXPECT_EQ(*tokens.Read("jobs of a", tokens.Make("jobs of a", next)), next);
    EXPECT_EQ(*tokens.Read("", tokens.Make("", next)), next);
  }
}

TEST(PageTokens, TokensRevealNothing) {
  const PageTokens tokens;
  std::set<std::string> made;
  for (int i = 0; i < 100; ++i) made.insert(tokens.Make("jobs", 1));
  EXPECT_EQ(made.size(), 100u);
  for (const std::string& token : made) {
    EXPECT_EQ(token.size(), made.begin()->size());
  }
}

TEST(PageTokens, RefusesTokensFromOtherQueries) {
  const PageTokens tokens;
  const PageTokens other_run;
  const std::string token = tokens.Make("jobs of a", 7);
  const auto expect_refused = [](const absl::StatusOr<uint64_t>& read) {
    EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status();
    EXPECT_EQ(ErrorReasonName(read.status()), "INVALID_PAGE_TOKEN");
    EXPECT_EQ(BlamedField(read.status()), "page_token");
  };
  expect_refused(tokens.Read("jobs of b", token));
  expect_refused(tokens.Read("", token));
  expect_refused(other_run.Read("jobs of a", token));
  std::string bytes;
  ASSERT_TRUE(absl::WebSafeBase64Unescape(token, &bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string forged = bytes;
    forged[i] = static_cast<char>(forged[i] ^ 1);
    expect_refused(tokens.Read("jobs of a", absl::WebSafeBase64Escape(forged)));
  }
  for (const std::string& forged :
       {std::string(), std::string("7"), std::string("\xFF\x00?", 3),
        absl::WebSafeBase64Escape(bytes.substr(1)),
        absl::WebSafeBase64Escape(bytes + "x"), absl::StrCat(token, "!"),
        std::string(1 << 20, 'A')}) {
    expect_refused(tokens.Read("jobs of a", forged));
  }
}

}  // namespace
}  // namespace dcp::server
