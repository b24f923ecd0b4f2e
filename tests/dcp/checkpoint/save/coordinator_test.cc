// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/save/coordinator.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/thread_coordinator.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOk;
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::RunRanks;
using ::dcp::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;

TEST(Coordinator, WorksForOneProcess) {
  SingleProcessCoordinator coordinator;
  EXPECT_EQ(coordinator.rank(), 0);
  EXPECT_EQ(coordinator.num_ranks(), 1);
  EXPECT_THAT(coordinator.Gather("a"), IsOkAndHolds(ElementsAre("a")));
  EXPECT_THAT(coordinator.Scatter({"b"}), IsOkAndHolds("b"));
  EXPECT_OK(Agree(coordinator, absl::OkStatus()));
}

TEST(Coordinator, AgreeIsOkWhenAllAre) {
  EXPECT_THAT(RunRanks(3,
                       [](Coordinator& coordinator) {
                         return Agree(coordinator, absl::OkStatus());
                       }),
              Each(IsOk()));
}

TEST(Coordinator, AgreeNamesTheFirstRankThatFailed) {
  EXPECT_THAT(RunRanks(4,
                       [](Coordinator& coordinator) {
                         return Agree(coordinator,
                                      coordinator.rank() < 2
                                          ? absl::OkStatus()
                                          : absl::DataLossError(absl::StrCat(
                                                "no ", coordinator.rank())));
                       }),
              Each(StatusIs(absl::StatusCode::kDataLoss, "rank 2: no 2")));
}

class SilentCoordinator final : public Coordinator {
 public:
  int64_t rank() const override { return 0; }
  int64_t num_ranks() const override { return 2; }
  absl::StatusOr<std::vector<std::string>> Gather(std::string mine) override {
    return std::vector<std::string>{mine, ""};
  }
  absl::StatusOr<std::string> Scatter(
      std::vector<std::string> values) override {
    return values[0];
  }
};

TEST(Coordinator, AgreeSaysThatARankSentNoStatus) {
  SilentCoordinator coordinator;
  EXPECT_THAT(
      Agree(coordinator, absl::OkStatus()),
      StatusIs(absl::StatusCode::kInternal,
               "rank 1: expected the status of a rank, found something else"));
}

}  // namespace
}  // namespace dcp
