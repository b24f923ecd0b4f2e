// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/source_loss.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SourceLoss, SelectsLossesByPart) {
  const std::vector<SourceLoss> losses = {
      {.part = StatePart::kModel, .text = "shapes"},
      {.part = StatePart::kOptimizer, .text = "names"}};
  EXPECT_THAT(LossTexts(LossesAbout(losses, {})),
              ElementsAre("shapes", "names"));
  EXPECT_THAT(LossTexts(LossesAbout(losses, {StatePart::kModel})),
              ElementsAre("shapes"));
  EXPECT_THAT(LossesAbout(losses, {StatePart::kExtra}), IsEmpty());
}

}  // namespace
}  // namespace dcp
