// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/check.h"

#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(CheckDeathTest, FailureNamesPlaceExpressionAndValues) {
  const int a = 3;
  EXPECT_DEATH(DCP_CHECK(a < 2, "a=", a), "check_test.cc:.*a < 2.*a=3");
}

TEST(Check, SuccessDoesNotEvaluateTheMessage) {
  int evaluated = 0;
  DCP_CHECK(true, ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST(Check, IsOneStatement) {
  bool reached_else = false;
  if (false)
    DCP_CHECK(false, "never");
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

}  // namespace
}  // namespace dcp
