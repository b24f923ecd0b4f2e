// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/plain_value.h"

#include <string>

#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;

TEST(PlainValue, ValuesComeBackAsTheyWere) {
  dcp::ValueArena arena;
  for (const StateValue& value :
       {StateValue(), StateValue(true), StateValue(-7), StateValue(0.1),
        StateValue("text"), StateValue(StateBytes{"\xff"}),
        StateValue(StateList{1, "a", StateList{}}),
        StateValue(StateTuple{{0.9, 0.999}})}) {
    ASSERT_OK_AND_ASSIGN(const dcp::Value pickled, ToValue(value, arena));
    ASSERT_OK_AND_ASSIGN(const StateValue back, FromValue(pickled));
    ASSERT_OK_AND_ASSIGN(const dcp::Value again, ToValue(back, arena));
    EXPECT_EQ(back.variant().index(), value.variant().index());
    EXPECT_TRUE(dcp::DeepEqual(pickled, again)) << dcp::ToString(pickled);
  }
  ASSERT_OK_AND_ASSIGN(
      const StateValue dict,
      FromValue(arena.Dict({dcp::Value::Int(0), arena.Str("a")})));
  EXPECT_EQ(*dict.get_if<StateDict>()->find("0")->get_if<std::string>(), "a");
}

TEST(PlainValue, RefusesValuesWithoutACounterpart) {
  dcp::ValueArena arena;
  EXPECT_THAT(ToValue(StateTuple{{at::ones({1})}}, arena),
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(FromValue(arena.Global("torch", "float32")),
              StatusIs(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace fsdp
