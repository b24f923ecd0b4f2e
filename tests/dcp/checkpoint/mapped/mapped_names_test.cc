// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/mapped/mapped_names.h"

#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/mapped_pair.h"

namespace dcp {
namespace {

TEST(MappedNames, AFewAreListedAndTheOthersCounted) {
  EXPECT_EQ(ShortNameList({}), "");
  EXPECT_EQ(ShortNameList({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(ShortNameList({"a", "b", "c", "d", "e"}), "a, b, c and 2 others");
}

TEST(MappedNames, ListsTheNamesThatAMappingMakes) {
  EXPECT_EQ(NamesMade(*testing::MappedPair::Map(), {"fused", "table"}),
            "; pair, from theirs to ours, makes fused, table from the "
            "stored tensors");
}

}  // namespace
}  // namespace dcp
