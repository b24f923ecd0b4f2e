// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/ranks.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

int Rank() { return std::stoi(std::getenv("RANK")); }

TEST(Ranks, RunAndReport) {
  const int base = 40;
  const std::vector<std::string> first = RunRanks(2, [&] {
    Report(base + Rank() + 0.1);
    Report(Rank());
  });
  ASSERT_EQ(first.size(), 2);
  EXPECT_THAT(ParseNumbers(first[1]), ElementsAre(41.1, 1));
  // Code before a call gives the same results in all ranks.
  const std::vector<std::string> second =
      RunRanks(3, [&] { Report(first[1]); });
  EXPECT_THAT(second, ElementsAre(first[1], first[1], first[1]));
}

TEST(Ranks, ShareADirectoryAndWait) {
  RunRanks(3, [] {
    const std::string path = SharedDir() + "/file";
    if (Rank() == 1) std::ofstream(path) << "x";
    WaitForAllRanks();
    EXPECT_EQ(access(path.c_str(), R_OK), 0);
    WaitForAllRanks();
  });
}

TEST(Ranks, EnvironmentIsSetAndUnset) {
  RunRanks(1,
           [] {
             EXPECT_STREQ(std::getenv("RANKS_TEST"), "1");
             EXPECT_EQ(std::getenv("PATH"), nullptr);
           },
           {.environment = {{"RANKS_TEST", "1"}, {"PATH", ""}}});
}

TEST(Ranks, FailedExpectationsNameTheRank) {
  EXPECT_THAT(RankFailures(2, [] { EXPECT_EQ(Rank(), 0) << "oh"; }),
              ElementsAre(AllOf(HasSubstr("rank 1: "),
                                HasSubstr("ranks_test.cc"), HasSubstr("oh"))));
}

TEST(Ranks, ExceptionsNameTheRankAndEndTheOthers) {
  EXPECT_THAT(
      RankFailures(2,
                   [] {
                     TORCH_CHECK(Rank() != 1, "no such thing");
                     WaitForAllRanks();
                     pause();
                   }),
      AllOf(Contains(AllOf(HasSubstr("rank 1: "), HasSubstr("no such thing"))),
            Contains("rank 0: was killed because another rank had "
                     "ended")));
}

TEST(Ranks, DeathNamesTheRankAndSignal) {
  EXPECT_THAT(RankFailures(2,
                           [] {
                             if (Rank() == 0) raise(SIGKILL);
                           }),
              ElementsAre(HasSubstr("rank 0: died of signal 9")));
  EXPECT_THAT(RankFailures(2,
                           [] {
                             if (Rank() == 0) _exit(3);
                           }),
              ElementsAre(HasSubstr("rank 0: ended with code 3")));
}

TEST(Ranks, DeathMayBeExpected) {
  RunRanks(2,
           [] {
             if (Rank() == 0) raise(SIGKILL);
           },
           {.may_die = {0}});
}

TEST(Ranks, AHangEndsAtTheDeadline) {
  EXPECT_THAT(RankFailures(2,
                           [] {
                             if (Rank() == 1) pause();
                           },
                           {.deadline = std::chrono::seconds(1)}),
              Contains("rank 1: was still running at the deadline"));
}

TEST(Ranks, ThrownMessageHasNoStackTrace) {
  EXPECT_EQ(ThrownMessage([] { TORCH_CHECK(false, "a ", 1); }), "a 1");
}

}  // namespace
}  // namespace fsdp::testing
