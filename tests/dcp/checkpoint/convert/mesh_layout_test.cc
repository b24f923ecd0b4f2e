// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/mesh_layout.h"

#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/convert/convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ExpectSame;
using ::dcp::testing::SaveAll;
using ::dcp::testing::SimStorage;
using ::dcp::testing::SmallModel;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = ParallelStyle::Kind;

using ::dcp::testing::kInvalid;

// A rule from "GLOB=PLACEMENTS", on the first mesh unless `mesh` is given.
PlacementRule Rule(std::string glob, absl::string_view placements,
                   std::string mesh = "") {
  return {std::move(glob), *ParsePlacements(placements), std::move(mesh)};
}

TensorParallel LlamaPlan() {
  TensorParallel parallel;
  EXPECT_OK(parallel.plan.Add(
      {.pattern = "layers.*.{w1,w3}", .style = {.kind = Kind::kColwise}}));
  EXPECT_OK(parallel.plan.Add(
      {.pattern = "layers.*.w2", .style = {.kind = Kind::kRowwise}}));
  EXPECT_OK(parallel.plan.Add(
      {.pattern = "tok_embeddings", .style = {.kind = Kind::kRowwise}}));
  EXPECT_OK(parallel.plan.Add(
      {.pattern = "layers.*.norm", .style = {.kind = Kind::kSequence}}));
  return parallel;
}

// A model of one layer, with the state of an optimizer and an object.
class MeshLayoutTest : public ::testing::Test {
 protected:
  MeshLayoutTest() {
    Add("model.tok_embeddings.weight", {10, 4});
    Add("model.layers.0.w1.weight", {12, 6});
    Add("model.layers.0.w2.weight", {6, 12});
    Add("model.layers.0.w2.bias", {6});
    Add("model.layers.0.norm.weight", {6});
    Add("model.layers.0.experts.w1", {8, 4, 4});
    Add("optimizer.state.layers.0.w1.weight.exp_avg", {12, 6});
    Add("optimizer.state.layers.0.w1.weight.step", {});
    entries_.push_back({.fqn = "extra", .path = {}});
  }

  void Add(std::string name, Dims shape) {
    TensorEntry& tensor = tensors_.emplace_back();
    tensor.shape = std::move(shape);
    entries_.push_back({.fqn = std::move(name), .path = {}, .tensor = &tensor});
  }

  // Each tensor's placements in words, after the name of its mesh.
  std::map<std::string, std::string> Layouts(const ConvertOptions& options) {
    EXPECT_OK(CheckMeshes(options));
    const auto layouts = LayoutEntries(entries_, options);
    EXPECT_OK(layouts);
    std::map<std::string, std::string> result;
    for (size_t i = 0; layouts.ok() && i < entries_.size(); ++i) {
      const EntryLayout& layout = (*layouts)[i];
      const std::string mesh =
          layout.mesh == 0
              ? ""
              : absl::StrCat(options.other_meshes[layout.mesh - 1].name, ":");
      result[entries_[i].fqn] = absl::StrCat(mesh, ToString(layout.placements));
    }
    return result;
  }

  std::list<TensorEntry> tensors_;
  std::vector<OutputEntry> entries_;
};

TEST_F(MeshLayoutTest, APlanPlacesParametersAndTheirStateAsFullyShardDoes) {
  ConvertOptions options;
  options.mesh = *ParseMesh("dp=2,tp=2");
  options.tensor_parallel = LlamaPlan();
  const std::map<std::string, std::string> layouts = Layouts(options);
  EXPECT_EQ(layouts.at("model.tok_embeddings.weight"), "SS(0,2),S(0)");
  EXPECT_EQ(layouts.at("model.layers.0.w1.weight"), "SS(0,2),S(0)");
  EXPECT_EQ(layouts.at("model.layers.0.w2.weight"), "S(0),S(1)");
  EXPECT_EQ(layouts.at("model.layers.0.w2.bias"), "S(0),R");
  EXPECT_EQ(layouts.at("model.layers.0.norm.weight"), "S(0),R");
  EXPECT_EQ(layouts.at("model.layers.0.experts.w1"), "S(0),R");
  EXPECT_EQ(layouts.at("optimizer.state.layers.0.w1.weight.exp_avg"),
            "SS(0,2),S(0)");
  EXPECT_EQ(layouts.at("optimizer.state.layers.0.w1.weight.step"), "R,R");
  EXPECT_EQ(layouts.at("extra"), "R,R");
}

TEST_F(MeshLayoutTest, APlanLeavesReplicasAndOtherNamesOfItsAxisAlone) {
  ConvertOptions options;
  options.mesh = *ParseMesh("dp_replicate=2,dp_shard=2,tensor=3");
  options.tensor_parallel = LlamaPlan();
  options.tensor_parallel->axis = "tensor";
  const std::map<std::string, std::string> layouts = Layouts(options);
  EXPECT_EQ(layouts.at("model.layers.0.w1.weight"), "R,SS(0,3),S(0)");
  EXPECT_EQ(layouts.at("model.layers.0.w2.bias"), "R,S(0),R");
}

TEST_F(MeshLayoutTest, ARuleWinsOverThePlan) {
  ConvertOptions options;
  options.mesh = *ParseMesh("dp=2,tp=2");
  options.tensor_parallel = LlamaPlan();
  options.placements = {Rule("*.w1.weight", "S(1),R")};
  const std::map<std::string, std::string> layouts = Layouts(options);
  EXPECT_EQ(layouts.at("model.layers.0.w1.weight"), "S(1),R");
  EXPECT_EQ(layouts.at("model.layers.0.w2.weight"), "S(0),S(1)");
}

TEST_F(MeshLayoutTest, AnEntryThatCutsNothingOrWhatItCannotIsAnError) {
  ConvertOptions options;
  options.mesh = *ParseMesh("dp=2,tp=2");
  options.tensor_parallel = LlamaPlan();
  ASSERT_OK(options.tensor_parallel->plan.Add(
      {.pattern = "output", .style = {.kind = Kind::kColwise}}));
  EXPECT_THAT(LayoutEntries(entries_, options),
              StatusIs(kInvalid, HasSubstr("'output' of the plan, which is "
                                           "colwise, matches no parameter")));
  options.tensor_parallel = TensorParallel();
  ASSERT_OK(options.tensor_parallel->plan.Add(
      {.pattern = "layers.*.norm", .style = {.kind = Kind::kColwise}}));
  EXPECT_THAT(LayoutEntries(entries_, options),
              StatusIs(kInvalid, HasSubstr("norm.weight has 1 dimensions")));
  // A rule takes the place of an entry that does not fit.
  options.tensor_parallel = LlamaPlan();
  ASSERT_OK(options.tensor_parallel->plan.Add(
      {.pattern = "layers.0.norm", .style = {.kind = Kind::kReplicate}}));
  EXPECT_THAT(LayoutEntries(entries_, options),
              StatusIs(kInvalid, HasSubstr("has one style")));
  options.placements = {Rule("*.norm.weight", "S(0),R")};
  EXPECT_OK(LayoutEntries(entries_, options));
}

TEST_F(MeshLayoutTest, ExpertsLieOnAMeshOfTheirOwn) {
  ConvertOptions options;
  options.mesh = *ParseMesh("fsdp=4");
  options.other_meshes = {{"experts", *ParseMesh("efsdp=2,ep=2")}};
  options.placements = {Rule("*.experts.*", "SS(0,2),S(0)", "experts")};
  const std::map<std::string, std::string> layouts = Layouts(options);
  EXPECT_EQ(layouts.at("model.layers.0.experts.w1"), "experts:SS(0,2),S(0)");
  EXPECT_EQ(layouts.at("model.layers.0.w1.weight"), "S(0)");
}

TEST_F(MeshLayoutTest, WithoutARuleOnlyAxesOfDataParallelismCut) {
  ConvertOptions options;
  options.mesh = *ParseMesh("rep=2,dp=2,cp=2,tp=2");
  options.placements = {Rule("*.w1.weight", "R,S(0),R,S(1)")};
  const std::map<std::string, std::string> layouts = Layouts(options);
  EXPECT_EQ(layouts.at("model.layers.0.w1.weight"), "R,S(0),R,S(1)");
  EXPECT_EQ(layouts.at("model.layers.0.w2.weight"), "R,S(0),R,R");
}

TEST(CheckMeshes, AnAxisOfAnotherParallelismIsNotGuessed) {
  const std::vector<std::pair<const char*, const char*>> meshes = {
      {"dp=2,tp=2", "'*.wq.weight=tp:S(0),dp:S(0)'"},
      {"dp=2,cp=2", "such as fsdp=4"},
      {"efsdp=2,ep=2", "a mesh of their own"},
      {"ep=2,etp=2", "a mesh of their own"},
      {"pp=2,dp=2", "leave the axis out"}};
  for (const auto& [mesh, advice] : meshes) {
    ConvertOptions options;
    options.mesh = *ParseMesh(mesh);
    EXPECT_THAT(CheckMeshes(options),
                StatusIs(kInvalid, AllOf(HasSubstr("nothing says which tensors "
                                                   "the axis"),
                                         HasSubstr(mesh), HasSubstr(advice))))
        << mesh;
    options.placements = {Rule("*", "S(0),R")};
    EXPECT_OK(CheckMeshes(options)) << mesh;
  }
  ConvertOptions one;
  one.mesh = *ParseMesh("dp=2,tp=1");
  EXPECT_OK(CheckMeshes(one));
}

TEST(CheckMeshes, APlanIsAboutItsOwnAxisOnly) {
  ConvertOptions options;
  options.mesh = *ParseMesh("dp=2,cp=2,tp=2");
  options.tensor_parallel = LlamaPlan();
  EXPECT_THAT(CheckMeshes(options), StatusIs(kInvalid, HasSubstr("axis cp")));
  options.mesh = *ParseMesh("dp=2,tp=2");
  EXPECT_OK(CheckMeshes(options));
  options.tensor_parallel->axis = "tensor";
  EXPECT_THAT(CheckMeshes(options),
              StatusIs(kInvalid, AllOf(HasSubstr("the plan"),
                                       HasSubstr("no axis tensor"))));
}

TEST(CheckMeshes, OtherMeshesAreOfTheSameRanksAndInUse) {
  ConvertOptions options;
  options.mesh = *ParseMesh("fsdp=4");
  options.other_meshes = {{"experts", *ParseMesh("efsdp=2,ep=2")}};
  EXPECT_THAT(CheckMeshes(options),
              StatusIs(kInvalid, HasSubstr("no tensor lies on the mesh "
                                           "experts")));
  options.placements = {Rule("*", "S(0),R", "experts")};
  EXPECT_OK(CheckMeshes(options));
  options.placements.push_back(Rule("*", "S(0)", "expert"));
  EXPECT_THAT(CheckMeshes(options),
              StatusIs(kInvalid, HasSubstr("the mesh expert, which is not")));
  options.placements = {Rule("*", "S(0)", "experts")};
  EXPECT_THAT(CheckMeshes(options),
              StatusIs(kInvalid, HasSubstr("1 placements for the 2 axes")));
  options.other_meshes[0].mesh = *ParseMesh("efsdp=2,ep=4");
  options.placements = {Rule("*", "S(0),R", "experts")};
  EXPECT_THAT(CheckMeshes(options),
              StatusIs(kInvalid, AllOf(HasSubstr("has 8 ranks"),
                                       HasSubstr("fsdp=4 has 4"))));
  options.other_meshes[0].mesh = *ParseMesh("efsdp=2,ep=2");
  options.other_meshes.push_back(options.other_meshes[0]);
  EXPECT_THAT(CheckMeshes(options),
              StatusIs(kInvalid, HasSubstr("two meshes have the name")));
}

TEST(CheckMeshes, EverythingRequiresTheFirstMesh) {
  ConvertOptions options;
  EXPECT_OK(CheckMeshes(options));
  options.tensor_parallel = LlamaPlan();
  EXPECT_THAT(CheckMeshes(options), StatusIs(kInvalid, HasSubstr("a mesh")));
  ConvertOptions other;
  other.other_meshes = {{"experts", *ParseMesh("ep=2")}};
  EXPECT_THAT(CheckMeshes(other), StatusIs(kInvalid, HasSubstr("a mesh")));
}

// Two meshes, written and read again.
TEST(MeshLayout, ACheckpointOnTwoMeshesHoldsTheSame) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  ConvertOptions options;
  options.mesh = *ParseMesh("fsdp=4");
  options.other_meshes = {{"experts", *ParseMesh("efsdp=2,ep=2")}};
  options.placements = {Rule("b", "SS(0,2),S(0)", "experts")};
  ASSERT_OK(ConvertCheckpoint(fs, "/a", "/b", std::move(options)));
  ExpectSame(fs, "/a", "/b");
}

}  // namespace
}  // namespace dcp
