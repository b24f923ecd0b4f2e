// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/value/value_lookup.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/rank_values.h"

namespace dcp {
namespace {

using ::dcp::testing::MakeObject;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ValueLookupTest : public ::testing::Test {
 protected:
  Value Text(absl::string_view text) { return arena_.Str(text); }

  ValueArena arena_;
};

TEST_F(ValueLookupTest, TheLastValueOfAKeyCounts) {
  const Value dict =
      arena_.Dict({Text("a"), Value::Int(1), Value::Int(7), Value::Int(2),
                   Text("b"), Value::Int(3), Text("a"), Value::Int(4)});
  EXPECT_EQ(FindKey(dict, "a")->int_value(), 4);
  EXPECT_FALSE(FindKey(dict, "c").has_value());
  EXPECT_FALSE(FindKey(Value::Int(1), "a").has_value());
  const auto values = ValuesByKey(dict);
  EXPECT_EQ(values.size(), 2u);
  EXPECT_EQ(values.at("a").int_value(), 4);
  EXPECT_THAT(ValuesByKey(arena_.List()), IsEmpty());
  std::vector<std::pair<std::string, int64_t>> items;
  for (const auto& [key, value] : ItemsByKey(dict)) {
    items.emplace_back(key, value.int_value());
  }
  EXPECT_THAT(items, ElementsAre(std::pair("a", 4), std::pair("b", 3)));
  EXPECT_THAT(ItemsByKey(Value()), IsEmpty());
}

TEST_F(ValueLookupTest, AttributesAreInADictOrBehindSlots) {
  const Value object = MakeObject(arena_, "m", "C", {{"dim", Value::Int(2)}});
  EXPECT_EQ(ObjectAttribute(object, "dim").int_value(), 2);
  EXPECT_TRUE(ObjectAttribute(object, "other").is_none());
  EXPECT_TRUE(ObjectAttribute(Value::Int(1), "dim").is_none());
  const Value slots =
      arena_.Tuple({Value(), arena_.Dict({Text("dim"), Value::Int(3)})});
  EXPECT_EQ(AttributeInState(slots, "dim").int_value(), 3);
  // Tuples inside tuples are not looked into.
  EXPECT_TRUE(AttributeInState(arena_.Tuple({slots}), "dim").is_none());
}

}  // namespace
}  // namespace dcp
