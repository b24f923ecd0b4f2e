// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/layout_messages.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::StartsWith;

using ::dcp::testing::kInvalid;

template <typename T>
T LayoutProto(const std::string& text) {
  T proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto))
      << text;
  return proto;
}

// A refused message, and how the error begins.
struct RefusedLayout {
  const char* text;
  const char* error;
};

TEST(LayoutMessages, BoxesConvertBothWays) {
  for (const Box& box : {Box{}, Box{{1, 2}, {3, 0}}}) {
    v1::Box proto;
    BoxToProto(box, proto);
    EXPECT_THAT(BoxFromProto(proto, "box"), IsOkAndHolds(box));
  }
}

TEST(LayoutMessages, BoxesAreChecked) {
  for (const RefusedLayout& refused : std::vector<RefusedLayout>{
           {"offsets: 1", "box has 1 offsets and 0 sizes"},
           {"offsets: -1 sizes: 1", "box.offsets[0] is -1"},
           {"offsets: [0, 0] sizes: [1, -9223372036854775808]",
            "box.sizes[1] is -9223372036854775808"},
       }) {
    EXPECT_THAT(BoxFromProto(LayoutProto<v1::Box>(refused.text), "box"),
                StatusIs(kInvalid, StartsWith(refused.error)));
  }
  v1::Box deep;
  for (int i = 0; i < 65; ++i) deep.add_offsets(0), deep.add_sizes(1);
  EXPECT_THAT(BoxFromProto(deep, "box"),
              StatusIs(kInvalid, StartsWith("box has 65 dimensions")));
}

TEST(LayoutMessages, MeshesConvertBothWays) {
  const Mesh mesh{{{"replicate", 2}, {"shard", 3}}};
  v1::Mesh proto;
  MeshToProto(mesh, proto);
  ASSERT_OK_AND_ASSIGN(const Mesh back, MeshFromProto(proto, "mesh"));
  EXPECT_EQ(ToString(back), "replicate=2,shard=3");
}

TEST(LayoutMessages, MeshesAreChecked) {
  for (const RefusedLayout& refused : std::vector<RefusedLayout>{
           {"", "mesh.axes has 0 entries"},
           {"axes { size: 2 }", "mesh.axes[0].name is ''"},
           {"axes { name: 'a b' size: 2 }", "mesh.axes[0].name is 'a b'"},
           {"axes { name: 'a' size: 2 } axes { name: 'a' size: 2 }",
            "mesh.axes[1].name is 'a': another"},
           {"axes { name: 'a' }", "mesh.axes[0].size is 0"},
           {"axes { name: 'a' size: -2 }", "mesh.axes[0].size is -2"},
           {"axes { name: 'a' size: 1048577 }", "mesh has more than 1048576"},
           {"axes { name: 'a' size: 1048576 } axes { name: 'b' size: 2 }",
            "mesh has more than 1048576"},
       }) {
    EXPECT_THAT(MeshFromProto(LayoutProto<v1::Mesh>(refused.text), "mesh"),
                StatusIs(kInvalid, StartsWith(refused.error)));
  }
  v1::Mesh many;
  for (int i = 0; i < 17; ++i) {
    many.add_axes()->set_name(absl::StrCat("a", i));
  }
  EXPECT_THAT(MeshFromProto(many, "mesh"),
              StatusIs(kInvalid, StartsWith("mesh.axes has 17 entries")));
}

TEST(LayoutMessages, CoordinatesLieInTheMesh) {
  const Mesh mesh{{{"a", 2}, {"b", 3}}};
  google::protobuf::RepeatedField<int64_t> coordinate;
  coordinate.Add(1);
  EXPECT_THAT(CoordinateFromProto(coordinate, mesh, "c"),
              StatusIs(kInvalid, StartsWith("c has 1 entries")));
  coordinate.Add(2);
  EXPECT_THAT(CoordinateFromProto(coordinate, mesh, "c"),
              IsOkAndHolds(ElementsAre(1, 2)));
  coordinate[1] = 3;
  EXPECT_THAT(CoordinateFromProto(coordinate, mesh, "c"),
              StatusIs(kInvalid, StartsWith("c[1] is 3: axis 'b' has 0 to 2")));
  coordinate[1] = -1;
  EXPECT_THAT(CoordinateFromProto(coordinate, mesh, "c"),
              StatusIs(kInvalid, StartsWith("c[1] is -1")));
}

TEST(LayoutMessages, PlacementsConvertBothWays) {
  for (const Placement& placement :
       {Placement{}, Placement{Placement::Kind::kShard, 3, 1},
        Placement{Placement::Kind::kStridedShard, 1, 4}}) {
    v1::Placement proto;
    PlacementToProto(placement, proto);
    EXPECT_THAT(PlacementFromProto(proto, "p"), IsOkAndHolds(placement));
  }
}

TEST(LayoutMessages, PlacementsAreChecked) {
  for (const RefusedLayout& refused : std::vector<RefusedLayout>{
           {"", "p must set replicate"},
           {"shard { dim: -1 }", "p.shard.dim is -1"},
           {"shard { dim: 64 }", "p.shard.dim is 64"},
           {"strided_shard { dim: 64 split_factor: 1 }",
            "p.strided_shard.dim is 64"},
           {"strided_shard { }", "p.strided_shard.split_factor is 0"},
           {"strided_shard { split_factor: 1048577 }",
            "p.strided_shard.split_factor is 1048577"},
       }) {
    EXPECT_THAT(
        PlacementFromProto(LayoutProto<v1::Placement>(refused.text), "p"),
        StatusIs(kInvalid, StartsWith(refused.error)));
  }
}

TEST(LayoutMessages, RulesHaveAPlacementForEachAxis) {
  const Mesh mesh{{{"a", 2}, {"b", 3}}};
  auto request = LayoutProto<v1::ReshardRequest>(
      "placements { placements { replicate {} } "
      "placements { shard { dim: 1 } } }");
  ASSERT_OK_AND_ASSIGN(
      const std::vector<PlacementRule> rules,
      PlacementRulesFromProto(request.placements(), mesh, {}, "placements"));
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].glob, "*");
  EXPECT_EQ(ToString(rules[0].placements), "R,S(1)");

  request.mutable_placements(0)->mutable_placements(1)->clear_kind();
  EXPECT_THAT(
      PlacementRulesFromProto(request.placements(), mesh, {}, "placements"),
      StatusIs(kInvalid, StartsWith("placements[0].placements[1] must set")));
  request.mutable_placements(0)->mutable_placements()->RemoveLast();
  EXPECT_THAT(
      PlacementRulesFromProto(request.placements(), mesh, {}, "placements"),
      StatusIs(kInvalid, StartsWith("placements[0].placements has 1")));
}

TEST(LayoutMessages, RulesComeBackUnchanged) {
  const Mesh mesh{{{"a", 2}, {"b", 3}}};
  const PlacementRule rule = {
      .glob = "*.w",
      .placements = {Placement{}, Placement{Placement::Kind::kShard, 1, 1}}};
  v1::ReshardRequest request;
  PlacementRuleToProto(rule, *request.add_placements());
  ASSERT_OK_AND_ASSIGN(
      const std::vector<PlacementRule> rules,
      PlacementRulesFromProto(request.placements(), mesh, {}, "placements"));
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].glob, rule.glob);
  EXPECT_EQ(rules[0].placements, rule.placements);
}

TEST(LayoutMessages, RulesMayNameAnotherMesh) {
  const Mesh mesh{{{"fsdp", 4}}};
  const std::vector<NamedMesh> others = {
      {"experts", Mesh{{{"efsdp", 2}, {"ep", 2}}}}};
  auto request = LayoutProto<v1::ReshardRequest>(
      "placements { mesh: 'experts' placements { replicate {} } "
      "placements { shard {} } } placements { placements { shard {} } }");
  ASSERT_OK_AND_ASSIGN(
      const std::vector<PlacementRule> rules,
      PlacementRulesFromProto(request.placements(), mesh, others, "p"));
  EXPECT_EQ(rules[0].mesh, "experts");
  EXPECT_EQ(rules[1].mesh, "");
  request.mutable_placements(0)->set_mesh("expert");
  EXPECT_THAT(PlacementRulesFromProto(request.placements(), mesh, others, "p"),
              StatusIs(kInvalid, StartsWith("p[0].mesh is 'expert'")));
  request.mutable_placements(0)->set_mesh("");
  EXPECT_THAT(PlacementRulesFromProto(request.placements(), mesh, others, "p"),
              StatusIs(kInvalid, StartsWith("p[0].placements has 2")));
}

TEST(LayoutMessages, OtherMeshesConvertBothWays) {
  v1::ReshardRequest request;
  NamedMeshToProto({"experts", Mesh{{{"efsdp", 2}, {"ep", 2}}}},
                   *request.add_other_meshes());
  ASSERT_OK_AND_ASSIGN(const std::vector<NamedMesh> meshes,
                       NamedMeshesFromProto(request.other_meshes(), "m"));
  ASSERT_EQ(meshes.size(), 1u);
  EXPECT_EQ(meshes[0].name, "experts");
  EXPECT_EQ(ToString(meshes[0].mesh), "efsdp=2,ep=2");
  request.mutable_other_meshes(0)->set_name("a b");
  EXPECT_THAT(NamedMeshesFromProto(request.other_meshes(), "m"),
              StatusIs(kInvalid, StartsWith("m[0].name is 'a b'")));
  request.mutable_other_meshes(0)->set_name("e");
  request.mutable_other_meshes(0)->clear_mesh();
  EXPECT_THAT(NamedMeshesFromProto(request.other_meshes(), "m"),
              StatusIs(kInvalid, StartsWith("m[0].mesh.axes has 0")));
  for (int i = 0; i < 17; ++i) request.add_other_meshes();
  EXPECT_THAT(NamedMeshesFromProto(request.other_meshes(), "m"),
              StatusIs(kInvalid, StartsWith("m has 18 entries")));
}

TEST(LayoutMessages, PlansConvertBothWays) {
  TensorParallel parallel;
  parallel.axis = "tensor";
  using Kind = ParallelStyle::Kind;
  for (const Kind kind :
       {Kind::kColwise, Kind::kRowwise, Kind::kSequence, Kind::kReplicate}) {
    ASSERT_OK(parallel.plan.Add(
        {.pattern = "a.{b,c}.*", .style = {.kind = kind, .embedding = true}}));
  }
  v1::TensorParallel proto;
  TensorParallelToProto(parallel, proto);
  ASSERT_OK_AND_ASSIGN(const TensorParallel again,
                       TensorParallelFromProto(proto, "t"));
  EXPECT_EQ(again.axis, "tensor");
  ASSERT_EQ(again.plan.entries().size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(again.plan.entries()[i].pattern, "a.{b,c}.*");
    EXPECT_TRUE(again.plan.entries()[i].style ==
                parallel.plan.entries()[i].style);
  }
  ASSERT_OK_AND_ASSIGN(const TensorParallel empty,
                       TensorParallelFromProto(v1::TensorParallel(), "t"));
  EXPECT_EQ(empty.axis, "tp");
}

TEST(LayoutMessages, PlansAreChecked) {
  for (const RefusedLayout& refused : std::vector<RefusedLayout>{
           {"axis: 'a b'", "t.axis is 'a b'"},
           {"entries { pattern: 'a' style: 'colwse' }",
            "t.entries[0].style is 'colwse', not colwise"},
           {"entries { pattern: 'a' style: 'colwise' } entries { pattern: "
            "'b{' style: 'rowwise' }",
            "t.entries[1].pattern: the pattern 'b{' has braces"},
           {"entries { pattern: 'a' }", "t.entries[0].style is ''"}}) {
    EXPECT_THAT(TensorParallelFromProto(
                    LayoutProto<v1::TensorParallel>(refused.text), "t"),
                StatusIs(kInvalid, StartsWith(refused.error)));
  }
}

}  // namespace
}  // namespace dcp
