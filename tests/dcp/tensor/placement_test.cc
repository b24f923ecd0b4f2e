// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/placement.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

using ::dcp::testing::kInvalid;

Dims ToDims(const nlohmann::json& list) {
  Dims dims;
  for (const nlohmann::json& value : list) dims.push_back(value.get<int64_t>());
  return dims;
}

Mesh MeshOf(const Dims& sizes) {
  Mesh mesh;
  for (const int64_t size : sizes) {
    mesh.axes.push_back(
        {.name = absl::StrCat("axis", mesh.axes.size()), .size = size});
  }
  return mesh;
}

// The table says "S0" and "SS0:2" where we say "S(0)" and "SS(0,2)".
std::string ToSpec(const nlohmann::json& placements) {
  std::vector<std::string> specs;
  for (const nlohmann::json& p : placements) {
    const std::string text = p.get<std::string>();
    const size_t digits = text.find_first_of("0123456789");
    specs.push_back(
        digits == std::string::npos
            ? text
            : absl::StrCat(
                  text.substr(0, digits), "(",
                  absl::StrReplaceAll(text.substr(digits), {{":", ","}}), ")"));
  }
  return absl::StrJoin(specs, ",");
}

// The indices in every dimension, one by one, as DTensor defines them.
std::vector<std::vector<int64_t>> NaiveIndices(const Dims& shape,
                                               const Mesh& mesh,
                                               const Placements& placements,
                                               const Dims& coordinate) {
  const auto chunk = [](const std::vector<int64_t>& list, int64_t n,
                        int64_t i) {
    const auto size = static_cast<int64_t>(list.size());
    const int64_t step = (size + n - 1) / n;
    return std::vector<int64_t>(list.begin() + std::min(size, step * i),
                                list.begin() + std::min(size, step * (i + 1)));
  };
  std::vector<std::vector<int64_t>> indices;
  for (const int64_t size : shape) {
    indices.emplace_back();
    for (int64_t i = 0; i < size; ++i) indices.back().push_back(i);
  }
  for (size_t a = 0; a < placements.size(); ++a) {
    const Placement& p = placements[a];
    if (p.kind == Placement::Kind::kReplicate) continue;
    std::vector<int64_t>& list = indices[static_cast<size_t>(p.dim)];
    std::vector<int64_t> kept;
    for (int64_t j = 0; j < p.split_factor; ++j) {
      const std::vector<int64_t> piece = chunk(list, p.split_factor, j);
      const std::vector<int64_t> part =
          chunk(piece, mesh.axes[a].size, coordinate[a]);
      kept.insert(kept.end(), part.begin(), part.end());
    }
    list = kept;
  }
  return indices;
}

// The boxes hold exactly the product of the indices.
void ExpectBoxesHold(const std::vector<Box>& boxes,
                     const std::vector<std::vector<int64_t>>& indices) {
  int64_t wanted = 1;
  for (const std::vector<int64_t>& list : indices) {
    wanted *= static_cast<int64_t>(list.size());
  }
  int64_t volume = 0;
  for (size_t b = 0; b < boxes.size(); ++b) {
    volume += Volume(boxes[b].sizes);
    for (size_t other = 0; other < b; ++other) {
      EXPECT_FALSE(Intersect(boxes[other], boxes[b]).has_value());
    }
    if (wanted == 0) continue;
    for (size_t d = 0; d < indices.size(); ++d) {
      for (int64_t i = 0; i < boxes[b].sizes[d]; ++i) {
        EXPECT_TRUE(std::binary_search(indices[d].begin(), indices[d].end(),
                                       boxes[b].offsets[d] + i));
      }
    }
  }
  EXPECT_EQ(volume, wanted);
}

TEST(Placement, EqualsTheTableMadeByPyTorch) {
  std::ifstream file("tests/golden/chunk_table.json");
  ASSERT_TRUE(file.good());
  const nlohmann::json table = nlohmann::json::parse(file);
  EXPECT_EQ(table.size(), 886u);
  for (const nlohmann::json& row : table) {
    SCOPED_TRACE(row.dump());
    const Dims shape = ToDims(row["shape"]);
    const Mesh mesh = MeshOf(ToDims(row["mesh"]));
    ASSERT_OK_AND_ASSIGN(const Placements placements,
                         ParsePlacements(ToSpec(row["placements"])));
    ASSERT_EQ(mesh.num_ranks(), static_cast<int64_t>(row["chunks"].size()));
    bool contiguous = true;
    for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
      const Dims coordinate = mesh.Coordinate(rank);
      ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes,
                           LocalBoxes(shape, mesh, placements, coordinate));
      ExpectBoxesHold(boxes, NaiveIndices(shape, mesh, placements, coordinate));
      const nlohmann::json& chunk = row["chunks"][static_cast<size_t>(rank)];
      contiguous &= boxes.size() == 1;
      EXPECT_EQ(boxes[0].offsets, ToDims(chunk[0]));
      if (boxes.size() == 1) {
        EXPECT_EQ(boxes[0].sizes, ToDims(chunk[1]));
      }
    }
    EXPECT_EQ(contiguous, row["contiguous"].get<bool>());
  }
}

TEST(Placement, UnevenStridedShardIsSeveralBoxes) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("dp=3,tp=2"));
  ASSERT_OK_AND_ASSIGN(const Placements placements,
                       ParsePlacements("SS(0,2),S(0)"));
  EXPECT_THAT(LocalBoxes({13, 4}, mesh, placements, {2, 0}),
              dcp::testing::IsOkAndHolds(
                  std::vector<Box>{{.offsets = {6, 0}, .sizes = {1, 4}},
                                   {.offsets = {11, 0}, .sizes = {1, 4}}}));
}

TEST(Placement, ScalarsAreHeldWhole) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("shard=4"));
  EXPECT_THAT(LocalBoxes({}, mesh, DefaultPlacements(mesh, {}), {3}),
              dcp::testing::IsOkAndHolds(std::vector<Box>{Box{}}));
}

TEST(Placement, HugeShapesDoNotOverflow) {
  const int64_t size = INT64_MAX;
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("shard=1000000"));
  ASSERT_OK_AND_ASSIGN(const Placements shard, ParsePlacements("S(0)"));
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes,
                       LocalBoxes({size}, mesh, shard, {999999}));
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_EQ(boxes[0].offsets[0] + boxes[0].sizes[0], size);
}

TEST(Placement, RefusesPlacementsThatDoNotFitTheTensor) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("shard=2"));
  ASSERT_OK_AND_ASSIGN(const Placements shard1, ParsePlacements("S(1)"));
  ASSERT_OK_AND_ASSIGN(const Placements two, ParsePlacements("R,R"));
  EXPECT_THAT(LocalBoxes({4}, mesh, shard1, {0}),
              StatusIs(kInvalid, HasSubstr("S(1)")));
  EXPECT_THAT(LocalBoxes({4}, mesh, two, {0}),
              StatusIs(kInvalid, HasSubstr("2 placements")));
  const Placement negative{.kind = Placement::Kind::kShard, .dim = -1};
  EXPECT_THAT(LocalBoxes({4}, mesh, {negative}, {0}), StatusIs(kInvalid));
  const Placement zero{.kind = Placement::Kind::kStridedShard,
                       .split_factor = 0};
  EXPECT_THAT(LocalBoxes({4}, mesh, {zero}, {0}), StatusIs(kInvalid));
}

TEST(Mesh, ParsesAndPrints) {
  for (const char* spec :
       {"shard=4", "replicate=2,shard=3", "dp=2,tp=2", "a=1048576"}) {
    ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh(spec));
    EXPECT_EQ(ToString(mesh), spec);
  }
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("replicate=2,shard=3"));
  EXPECT_EQ(mesh.num_ranks(), 6);
  EXPECT_EQ(mesh.Coordinate(0), (Dims{0, 0}));
  EXPECT_EQ(mesh.Coordinate(4), (Dims{1, 1}));
}

TEST(Mesh, RefusesInvalidMeshes) {
  for (const char* spec :
       {"", "4", "shard", "shard=", "shard=0", "shard=-1", "shard=x", "=4",
        "a=2,", "a=2,a=2", "a b=2", "a=1048577", "a=1024,b=1024,c=2",
        "a=9223372036854775807,b=9223372036854775807", "a=2=3"}) {
    EXPECT_THAT(ParseMesh(spec), StatusIs(kInvalid)) << spec;
  }
}

TEST(Placement, ParsesAndPrints) {
  for (const char* spec : {"R", "S(0),R", "SS(0,2),S(0)", "S(63)"}) {
    ASSERT_OK_AND_ASSIGN(const Placements placements, ParsePlacements(spec));
    EXPECT_EQ(ToString(placements), spec);
  }
  ASSERT_OK_AND_ASSIGN(const Placements spaced, ParsePlacements("SS(1, 3), R"));
  EXPECT_EQ(ToString(spaced), "SS(1,3),R");
}

TEST(Placement, RefusesInvalidPlacements) {
  for (const char* spec :
       {"", "R,", ",R", "S", "S(", "S()", "S(-1)", "S(64)", "S(0", "S(0)R",
        "S(0,2)", "SS(0)", "SS(0,0)", "SS(0,2,3)", "P", "r", "S(x)",
        "SS(0,1048577)", "S(99999999999999999999)"}) {
    EXPECT_THAT(ParsePlacements(spec), StatusIs(kInvalid)) << spec;
  }
}

TEST(Placement, DefaultsFollowTheNamesOfTheAxes) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("dp_replicate=2,shard=3"));
  EXPECT_EQ(ToString(DefaultPlacements(mesh, {4, 4})), "R,S(0)");
  EXPECT_EQ(ToString(DefaultPlacements(mesh, {})), "R,R");
}

// A remote client's request must not fill the memory.
TEST(LocalBoxes, RefusesTooManyPieces) {
  const Mesh mesh{{{"a", 2}, {"b", 2}}};
  const int64_t many = int64_t{1} << 20;
  const Placement rows{Placement::Kind::kStridedShard, 0, many};
  const Placement columns{Placement::Kind::kStridedShard, 1, many};
  const Dims shape = {4 * many, 4 * many};
  for (const Placements& placements :
       {Placements{rows, columns}, Placements{rows, rows}}) {
    EXPECT_THAT(LocalBoxes(shape, mesh, placements, {0, 1}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::HasSubstr("pieces")));
  }
}

}  // namespace
}  // namespace dcp
