// SPDX-License-Identifier: Apache-2.0
// Compares with the packages' functions: transformers 5.23's get_scheduler (as
// LambdaLR factors), and TorchTitan 0.2.2's build_lr_schedulers.
#include "config/explain/learning_rate.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

std::vector<double> Curve(const LrSchedule& schedule, int64_t num_steps) {
  std::vector<double> factors;
  for (int64_t step = 0; step < num_steps; ++step) {
    factors.push_back(learning_rate_factor(schedule, step, num_steps));
  }
  return factors;
}

void ExpectCurve(const LrSchedule& schedule,
                 const std::vector<double>& expected) {
  EXPECT_THAT(Curve(schedule, static_cast<int64_t>(expected.size())),
              Pointwise(DoubleNear(1e-11), expected));
}

TEST(LearningRate, CurvesMatchTransformers) {
  ExpectCurve(
      {.decay = LrDecay::kLinear, .warmup_steps = 3},
      {0.0, 0.333333333333, 0.666666666667, 1.0, 0.857142857143, 0.714285714286,
       0.571428571429, 0.428571428571, 0.285714285714, 0.142857142857});
  ExpectCurve(
      {.decay = LrDecay::kCosine, .warmup_steps = 3},
      {0.0, 0.333333333333, 0.666666666667, 1.0, 0.950484433951, 0.811744900929,
       0.611260466978, 0.388739533022, 0.188255099071, 0.049515566049});
  ExpectCurve(
      {.decay = LrDecay::kCosine, .warmup_ratio = 0.2, .min_factor = 0.1},
      {0.0, 0.5, 1.0, 0.96574578963, 0.868198051534, 0.722207544564, 0.55,
       0.377792455436, 0.231801948466, 0.13425421037});
  ExpectCurve({.decay = LrDecay::kConstant, .warmup_steps = 4},
              {0.0, 0.25, 0.5, 0.75, 1.0, 1.0});
}

TEST(LearningRate, WarmupMayBeginAboveZero) {
  ExpectCurve({.decay = LrDecay::kLinear,
               .warmup_steps = 4,
               .min_factor = 0.5,
               .initial_factor = 0.2},
              {0.2, 0.4, 0.6, 0.8, 1.0, 0.875, 0.75, 0.625});
}

TEST(LearningRate, CurvesMatchTorchTitan) {
  ExpectCurve(
      {.decay = LrDecay::kLinear, .warmup_steps = 2, .counts_from_one = true},
      {0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125});
  ExpectCurve({.decay = LrDecay::kSqrt,
               .warmup_steps = 2,
               .min_factor = 0.25,
               .decay_ratio = 0.5,
               .counts_from_one = true},
              {0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.664589803375, 0.525658350975,
               0.419052498069, 0.32917960675});
  // 4.5 steps become 4, as Python rounds them.
  ExpectCurve({.decay = LrDecay::kCosine,
               .warmup_steps = 3,
               .decay_ratio = 0.45,
               .counts_from_one = true},
              {0.333333333333, 0.666666666667, 1.0, 1.0, 1.0, 1.0, 1.0,
               0.853553390593, 0.5, 0.146446609407});
  // There are more warmup steps than steps.
  ExpectCurve(
      {.decay = LrDecay::kLinear, .warmup_steps = 200, .counts_from_one = true},
      {0.25, 0.5, 0.75, 1.0});
  ExpectCurve({.decay = LrDecay::kLinear,
               .warmup_steps = 2,
               .total_steps = 12,
               .counts_from_one = true},
              {0.5, 1.0, 1.0, 0.9, 0.8, 0.7});
}

TEST(LearningRate, StaysConstantAfterTheLastStep) {
  EXPECT_EQ(learning_rate_factor({.decay = LrDecay::kLinear, .min_factor = 0.5},
                                 99, 10),
            0.5);
}

}  // namespace
}  // namespace fsdp
