// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/placement.h"

#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

TEST(Placement, KnowsItsKind) {
  EXPECT_TRUE(Shard(0).is_shard());
  EXPECT_TRUE(Shard(1).is_shard(1));
  EXPECT_FALSE(Shard(1).is_shard(0));
  EXPECT_TRUE(StridedShard(0, 2).is_shard(0));
  EXPECT_TRUE(Replicate().is_replicate());
  EXPECT_TRUE(Partial().is_partial());
  EXPECT_EQ(Partial(ReduceOp::kMax).reduce_op(), ReduceOp::kMax);
  EXPECT_EQ(StridedShard(0, 2).split_factor(), 2);
}

TEST(Placement, EqualWhenAllIsEqual) {
  EXPECT_EQ(Shard(0), Shard(0));
  EXPECT_FALSE(Shard(0) == Shard(1));
  EXPECT_FALSE(Placement(Shard(0)) == StridedShard(0, 2));
  EXPECT_FALSE(Partial() == Partial(ReduceOp::kAvg));
  EXPECT_FALSE(Placement(Replicate()) == Partial());
}

TEST(Placement, NormalizesNegativeDims) {
  EXPECT_EQ(Shard(-1).normalized(3), Shard(2));
  EXPECT_EQ(Shard(1).normalized(2), Shard(1));
  EXPECT_EQ(Replicate().normalized(0), Replicate());
  EXPECT_THROW((void)Shard(1).normalized(1), c10::IndexError);
  EXPECT_THROW((void)Shard(-2).normalized(1), c10::IndexError);
  EXPECT_THROW((void)Shard(0).normalized(0), c10::IndexError);
}

TEST(Placement, PrintsAsPyTorch) {
  EXPECT_EQ(to_string(Shard(0)), "Shard(dim=0)");
  EXPECT_EQ(to_string(Partial(ReduceOp::kAvg)), "Partial(avg)");
  EXPECT_EQ(to_string(StridedShard(0, 2)), "_StridedShard(dim=0, sf=2)");
  EXPECT_EQ(to_string(Placements{Shard(0)}), "(Shard(dim=0),)");
  EXPECT_EQ(to_string(Placements{Replicate(), Shard(1)}),
            "(Replicate(), Shard(dim=1))");
}

TEST(Placement, BecomesGeometry) {
  const dcp::Placements geometry =
      to_dcp(Placements{StridedShard(0, 2), Shard(1), Replicate()});
  EXPECT_EQ(dcp::ToString(geometry), "SS(0,2),S(1),R");
  EXPECT_THROW(to_dcp(Placements{Partial()}), c10::ValueError);
  EXPECT_THROW(to_dcp(Placements{Shard(-1)}), c10::ValueError);
}

}  // namespace
}  // namespace fsdp
