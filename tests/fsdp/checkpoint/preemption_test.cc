// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/preemption.h"

#include <signal.h>

#include "gtest/gtest.h"

namespace fsdp {
namespace {

TEST(PreemptionNotice, SetsAFlagWhileOneLives) {
  ASSERT_NE(signal(SIGTERM, SIG_IGN), SIG_ERR);
  {
    const PreemptionNotice first;
    const PreemptionNotice second;
    EXPECT_FALSE(first.came());
    raise(SIGTERM);
    EXPECT_TRUE(first.came());
    EXPECT_TRUE(second.came());
  }
  // The previous handler is back, and the next notice starts over.
  raise(SIGTERM);
  struct sigaction action;
  ASSERT_EQ(sigaction(SIGTERM, nullptr, &action), 0);
  EXPECT_EQ(action.sa_handler, SIG_IGN);
  EXPECT_FALSE(PreemptionNotice().came());
}

}  // namespace
}  // namespace fsdp
