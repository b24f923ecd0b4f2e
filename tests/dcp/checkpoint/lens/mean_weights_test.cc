// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/lens/mean_weights.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Terms = std::vector<MeanTerm>;

TEST(MeanWeights, OfWindowsFollowTheirFormulas) {
  EXPECT_THAT(WindowWeights(MeanWindow::kEqual, 4),
              ElementsAre(0.25, 0.25, 0.25, 0.25));
  EXPECT_THAT(WindowWeights(MeanWindow::kLinear, 4),
              ElementsAre(0.1, 0.2, 0.3, 0.4));
  // Decay weights 1, 1/2, 1 - sqrt(1/2), 1 - sqrt(3/4), 0.
  EXPECT_THAT(WindowWeights(MeanWindow::kMinusSqrt, 4),
              ElementsAre(0.5, DoubleNear(0.2071067811865476, 1e-15),
                          DoubleNear(0.1589186225978911, 1e-15),
                          DoubleNear(0.1339745962155614, 1e-15)));
  for (const MeanWindow window :
       {MeanWindow::kEqual, MeanWindow::kLinear, MeanWindow::kMinusSqrt}) {
    EXPECT_THAT(WindowWeights(window, 1), ElementsAre(1));
  }
}

TEST(MeanWeights, AreKnownByTheirWords) {
  EXPECT_EQ(ParseMeanWindow("equal"), MeanWindow::kEqual);
  EXPECT_EQ(ParseMeanWindow("linear"), MeanWindow::kLinear);
  EXPECT_EQ(ParseMeanWindow("minus-sqrt"), MeanWindow::kMinusSqrt);
  EXPECT_EQ(ParseMeanWindow("cosine"), std::nullopt);
}

TEST(MeanWeights, AreFiniteNumbersFromZeroWithASum) {
  EXPECT_OK(CheckMeanWeights(Terms{{"a", 0}, {"b", 2}, {"c", 0}}));
  for (const double wrong : {-1.0, std::nan(""), kInfinity}) {
    EXPECT_THAT(CheckMeanWeights(Terms{{"b", 1}, {"c", wrong}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("the weight of c"),
                               HasSubstr("a finite number from 0"))));
    EXPECT_THAT(CheckMeanWeights(Terms{{"a", wrong}, {"b", 1}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("the weight of a")));
  }
  EXPECT_THAT(CheckMeanWeights(Terms{{"a", 0}, {"b", 0}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the sum of the weights in the mean is 0")));
  const double largest = std::numeric_limits<double>::max();
  EXPECT_THAT(CheckMeanWeights(Terms{{"a", largest}, {"b", largest}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("it must be finite")));
}

TEST(MeanWeights, SayWhichCheckpointsAreRepeated) {
  EXPECT_THAT(RepeatedInMean(Terms{{"a"}, {"b"}, {"c"}}), IsEmpty());
  EXPECT_THAT(RepeatedInMean(Terms{{"./a/"}, {"b"}, {"a"}, {"b/"}, {"b"}}),
              ElementsAre(HasSubstr("a is in the mean 2 times"),
                          HasSubstr("b is in the mean 3 times")));
  EXPECT_THAT(RepeatedInMean(Terms{{"a"}}), IsEmpty());
}

}  // namespace
}  // namespace dcp
