// SPDX-License-Identifier: Apache-2.0

#include "server/reading/name_filter.h"

#include "gtest/gtest.h"

namespace dcp::server {
namespace {

TEST(NameFilter, MatchesAnyPattern) {
  const NameFilter filter({"model.a", "*.bias", "h.[01].w", "x\\*"});
  for (const char* name : {"model.a", "c.bias", "h.1.w", "x*"}) {
    EXPECT_TRUE(filter.Matches(name)) << name;
  }
  for (const char* name : {"model.ab", "bias", "h.2.w", "xy", "x\\*", ""}) {
    EXPECT_FALSE(filter.Matches(name)) << name;
  }
}

TEST(NameFilter, MatchesAllWithoutPatterns) {
  EXPECT_TRUE(NameFilter({}).Matches("any"));
  EXPECT_TRUE(NameFilter({}).Matches(""));
}

}  // namespace
}  // namespace dcp::server
