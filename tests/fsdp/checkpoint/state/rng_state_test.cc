// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/rng_state.h"

#include "ATen/ops/equal.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using absl::StatusCode;
using ::dcp::testing::IsOk;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

TEST(RngState, NumbersContinueFromIt) {
  const auto state = get_rng_state();
  ASSERT_OK(state.status());
  const auto* bytes = state->find("cpu")->get_if<at::Tensor>();
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(bytes->scalar_type(), at::kByte);
  EXPECT_EQ(bytes->numel(), 5056);  // as torch.get_rng_state()
  const at::Tensor first = at::rand({7});
  EXPECT_FALSE(at::equal(first, at::rand({7})));
  ASSERT_OK(set_rng_state(*state));
  EXPECT_TRUE(at::equal(first, at::rand({7})));
}

TEST(RngState, RefusesOtherDicts) {
  EXPECT_THAT(set_rng_state({}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("missing")));
  EXPECT_THAT(set_rng_state({{"cpu", 3}}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("cpu is an int, not a tensor")));
  const at::Tensor before = *get_rng_state()->find("cpu")->get_if<at::Tensor>();
  EXPECT_THAT(set_rng_state({{"cpu", at::zeros({3}, at::kByte)}}),
              ::testing::Not(IsOk()));
  EXPECT_TRUE(
      at::equal(before, *get_rng_state()->find("cpu")->get_if<at::Tensor>()));
}

}  // namespace
}  // namespace fsdp
