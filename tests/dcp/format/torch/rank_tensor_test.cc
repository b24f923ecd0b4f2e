// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/rank_tensor.h"

#include <string>
#include <utility>
#include <vector>

#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/rank_values.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::DTensorSpec;
using ::dcp::testing::MakeDTensor;
using ::dcp::testing::MakeInts;
using ::dcp::testing::MakeMesh;
using ::dcp::testing::MakeObject;
using ::dcp::testing::MakeReplicate;
using ::dcp::testing::MakeShard;
using ::dcp::testing::MakeShardedTensor;
using ::dcp::testing::MakeStridedShard;
using ::dcp::testing::ShardedSpec;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

class RankTensorTest : public ::testing::Test {
 protected:
  // The second of two ranks that have rows of a matrix.
  DTensorSpec Rows() {
    return {.shape = {5, 2},
            .local = {2, 2},
            .key = "0",
            .mesh = {2},
            .coordinate = {1},
            .placements = {MakeShard(arena_, 0)}};
  }
  ShardedSpec Shard() {
    return {.shape = {5, 2},
            .offsets = {3, 0},
            .sizes = {2, 2},
            .key = "0",
            .rank = 1,
            .world_size = 2};
  }
  Value Local() {
    return MakeTensor(arena_, DType::kUInt8, {2, 2}, false, "0");
  }

  ValueArena arena_;
};

TEST_F(RankTensorTest, ADTensorKnowsItsRows) {
  const Value value = MakeDTensor(arena_, Rows());
  ASSERT_TRUE(IsRankTensor(value));
  ASSERT_OK_AND_ASSIGN(const RankTensor tensor, ParseRankTensor(value));
  EXPECT_EQ(tensor.shape, Dims({5, 2}));
  EXPECT_EQ(tensor.mesh, "dim0=2");
  EXPECT_EQ(tensor.placements, "S(0)");
  ASSERT_EQ(tensor.pieces.size(), 1u);
  EXPECT_EQ(tensor.pieces[0].box, (Box{{3, 0}, {2, 2}}));
  EXPECT_EQ(tensor.pieces[0].offsets, Dims({0, 0}));
}

// (4, 3) in two pieces of two rows, each cut over two ranks.
TEST_F(RankTensorTest, AStridedShardHasSeveralBoxes) {
  DTensorSpec spec = Rows();
  spec.shape = {4, 3};
  spec.local = {2, 3};
  spec.placements = {MakeStridedShard(arena_, 0, 2)};
  ASSERT_OK_AND_ASSIGN(const RankTensor tensor,
                       ParseRankTensor(MakeDTensor(arena_, spec)));
  ASSERT_EQ(tensor.pieces.size(), 2u);
  EXPECT_EQ(tensor.pieces[0].box, (Box{{1, 0}, {1, 3}}));
  EXPECT_EQ(tensor.pieces[1].box, (Box{{3, 0}, {1, 3}}));
  EXPECT_EQ(tensor.pieces[1].offsets, Dims({1, 0}));
}

// Each of 2^15 pieces with three elements gives the second rank the last one.
TEST_F(RankTensorTest, ManyBoxesTakeLinearTime) {
  constexpr int64_t kNumPieces = int64_t{1} << 15;
  DTensorSpec spec = Rows();
  spec.shape = {3 * kNumPieces};
  spec.local = {kNumPieces};
  spec.placements = {MakeStridedShard(arena_, 0, kNumPieces)};
  ASSERT_OK_AND_ASSIGN(const RankTensor tensor,
                       ParseRankTensor(MakeDTensor(arena_, spec)));
  ASSERT_EQ(tensor.pieces.size(), static_cast<size_t>(kNumPieces));
  EXPECT_EQ(tensor.pieces.back().box, (Box{{3 * kNumPieces - 1}, {1}}));
  EXPECT_EQ(tensor.pieces.back().offsets, Dims({kNumPieces - 1}));
  spec.local = {kNumPieces - 1};
  EXPECT_THAT(ParseRankTensor(MakeDTensor(arena_, spec)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("[11:12], ...")));
}

TEST_F(RankTensorTest, ReadsEveryFormOfMesh) {
  const auto mesh_of = [&](Value mesh) -> std::string {
    DTensorSpec spec = Rows();
    spec.shape = spec.local = {2, 2};
    spec.placements = {MakeReplicate(arena_), MakeReplicate(arena_)};
    const absl::StatusOr<RankTensor> tensor =
        ParseRankTensor(MakeDTensor(arena_, spec, Local(), mesh));
    return tensor.ok() ? tensor->mesh : std::string(tensor.status().message());
  };
  const std::string module = "torch.distributed.device_mesh";
  const Value where = MakeInts(arena_, {1, 0});
  const Value names = arena_.Tuple({arena_.Str("dp"), arena_.Str("tp")});
  EXPECT_EQ(
      mesh_of(MakeObject(
          arena_, module, "DeviceMesh",
          {{"mesh", MakeTensor(arena_, DType::kInt64, {2, 3}, false, "1")},
           {"mesh_dim_names", names},
           {"_coordinate_on_dim", arena_.List(where.items())}})),
      "dp=2,tp=3");
  const auto flat = [&](const Dims& sizes) {
    return MakeObject(arena_, "torch.distributed._mesh_layout", "_FlatLayout",
                      {{"shape", MakeInts(arena_, sizes)}});
  };
  const Value axes = arena_.Tuple({flat({2}), flat({3, 2})});
  EXPECT_EQ(
      mesh_of(MakeObject(
          arena_, module, "DeviceMesh",
          {{"_layout", MakeObject(arena_, "torch.distributed._mesh_layout",
                                  "_MeshLayout", {{"axes", axes}})},
           {"_mesh_dim_names", names},
           {"_coordinate_on_dim", where}})),
      "dp=2,tp=6");
  EXPECT_THAT(mesh_of(MakeObject(arena_, module, "DeviceMesh",
                                 {{"_coordinate_on_dim", where}})),
              HasSubstr("its mesh has no shape"));
}

TEST_F(RankTensorTest, ARankOutsideTheMeshHasNoPieces) {
  const Value layout =
      MakeObject(arena_, "torch.distributed._mesh_layout", "_MeshLayout",
                 {{"shape", MakeInts(arena_, {2})}});
  const Value mesh = MakeObject(arena_, "torch.distributed.device_mesh",
                                "DeviceMesh", {{"_layout", layout}});
  ASSERT_OK_AND_ASSIGN(
      const RankTensor tensor,
      ParseRankTensor(MakeDTensor(arena_, Rows(), Local(), mesh)));
  EXPECT_TRUE(tensor.pieces.empty());
}

TEST_F(RankTensorTest, MalformedDTensorsAreRefused) {
  std::vector<std::pair<DTensorSpec, std::string>> cases;
  const auto add = [&](std::string message) -> DTensorSpec& {
    cases.emplace_back(Rows(), std::move(message));
    return cases.back().first;
  };
  add("[5] is not in the mesh").coordinate = {5};
  add("is not in the mesh").coordinate = {-1};
  add("is not in the mesh").coordinate = {1, 0};
  add("a mesh of [0]").mesh = {0};
  add("a mesh of [-2]").mesh = {-2};
  add("a mesh of").mesh = {int64_t{1} << 40};
  add("split factor is 0").placements = {MakeStridedShard(arena_, 0, 0)};
  add("split factor").placements = {
      MakeStridedShard(arena_, 0, int64_t{1} << 60)};
  add("placement").placements = {MakeShard(arena_, -1)};
  add("does not fit").placements = {MakeShard(arena_, 2)};
  add("2 placements").placements = {MakeShard(arena_, 0), MakeShard(arena_, 0)};
  add("placement").placements = {Value::Int(0)};
  add("has shape [3, 2]").local = {3, 2};
  add("has shape [2]").local = {2};
  add("").shape = {int64_t{1} << 62, 4};
  add("").shape = {-5, 2};
  for (const auto& [spec, message] : cases) {
    SCOPED_TRACE(message);
    EXPECT_THAT(ParseRankTensor(MakeDTensor(arena_, spec)),
                StatusIs(StatusCode::kDataLoss, HasSubstr(message)));
  }
}

TEST_F(RankTensorTest, NamesUnsupportedTensors) {
  DTensorSpec partial = Rows();
  partial.placements = {
      MakeObject(arena_, "torch.distributed.tensor.placement_types", "Partial",
                 {{"reduce_op", arena_.Str("sum")}})};
  EXPECT_THAT(ParseRankTensor(MakeDTensor(arena_, partial)),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("Partial")));
  const Value inner = MakeDTensor(arena_, Rows());
  EXPECT_THAT(
      ParseRankTensor(
          MakeDTensor(arena_, Rows(), inner, MakeMesh(arena_, {2}, {1}))),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("itself a DTensor")));
  const Value sparse =
      arena_.Call(arena_.Global("torch._utils", "_rebuild_sparse_tensor"),
                  arena_.Tuple({Value()}));
  EXPECT_THAT(ParseRankTensor(MakeDTensor(arena_, Rows(), sparse,
                                          MakeMesh(arena_, {2}, {1}))),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("sparse")));
}

TEST_F(RankTensorTest, TheDTypesOfPieceAndWholeAgree) {
  const Value bytes = MakeTensor(arena_, DType::kInt8, {2, 2}, false, "0");
  EXPECT_THAT(ParseRankTensor(MakeDTensor(arena_, Rows(), bytes,
                                          MakeMesh(arena_, {2}, {1}))),
              StatusIs(StatusCode::kDataLoss, HasSubstr("int8")));
}

TEST_F(RankTensorTest, AShardedTensorKnowsItsRank) {
  ASSERT_OK_AND_ASSIGN(const RankTensor tensor,
                       ParseRankTensor(MakeShardedTensor(arena_, Shard())));
  EXPECT_EQ(tensor.rank, 1);
  EXPECT_EQ(tensor.world_size, 2);
  ASSERT_EQ(tensor.pieces.size(), 1u);
  EXPECT_EQ(tensor.pieces[0].box, (Box{{3, 0}, {2, 2}}));
  ShardedSpec none = Shard();
  none.key = "";
  ASSERT_OK_AND_ASSIGN(const RankTensor empty,
                       ParseRankTensor(MakeShardedTensor(arena_, none)));
  EXPECT_TRUE(empty.pieces.empty());
}

TEST_F(RankTensorTest, MalformedShardedTensorsAreRefused) {
  std::vector<std::pair<ShardedSpec, std::string>> cases;
  const auto add = [&](std::string message) -> ShardedSpec& {
    cases.emplace_back(Shard(), std::move(message));
    return cases.back().first;
  };
  add("is not inside shape [5, 2]").offsets = {4, 0};
  add("is not inside").offsets = {-1, 0};
  add("is not inside").offsets = {3};
  add("is not inside").offsets = {int64_t{1} << 62, 0};
  add("is recorded with shape [2, 2]").local_sizes = {1, 2};
  add("too large").shape = {int64_t{1} << 62, 4};
  for (const auto& [spec, message] : cases) {
    SCOPED_TRACE(message);
    EXPECT_THAT(ParseRankTensor(MakeShardedTensor(arena_, spec)),
                StatusIs(StatusCode::kDataLoss, HasSubstr(message)));
  }
}

TEST_F(RankTensorTest, OtherValuesAreNotSharded) {
  EXPECT_FALSE(IsRankTensor(Local()));
  EXPECT_FALSE(IsRankTensor(Value::Int(1)));
  EXPECT_THAT(ParseRankTensor(Local()),
              StatusIs(StatusCode::kDataLoss, HasSubstr("expected one")));
}

}  // namespace
}  // namespace dcp
