// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/convert_output.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ExpectSame;
using ::dcp::testing::LoadBytes;
using ::dcp::testing::MetadataOf;
using ::dcp::testing::SaveAll;
using ::dcp::testing::SimStorage;
using ::dcp::testing::SmallModel;
using ::dcp::testing::StatusIs;
using ::dcp::testing::WriteSmallSafetensors;
using ::testing::HasSubstr;

TEST(ConvertOutput, KeepsTheMetadataOfSafetensors) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w",
                        {{"format", "mlx"}, {"license", "mit"}});
  for (const std::string dst : {"/b.safetensors", "/directory"}) {
    SCOPED_TRACE(dst);
    const auto plan = ConvertCheckpoint(fs, "/a.safetensors", dst, {});
    ASSERT_OK(plan);
    EXPECT_TRUE(plan->dropped_metadata.empty());
    EXPECT_EQ(MetadataOf(fs, dst),
              (SafetensorsMetadata{{"format", "mlx"}, {"license", "mit"}}));
    ExpectSame(fs, "/a.safetensors", dst);
  }
}

TEST(ConvertOutput, SetsAndDropsMetadata) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w",
                        {{"license", "mit"}, {"base", "x"}});
  ConvertOptions set;
  set.metadata = {{"base", "y"}, {"new", "1"}};
  ASSERT_OK(ConvertCheckpoint(fs, "/a.safetensors", "/set.safetensors",
                              std::move(set)));
  EXPECT_EQ(
      MetadataOf(fs, "/set.safetensors"),
      (SafetensorsMetadata{
          {"format", "pt"}, {"license", "mit"}, {"base", "y"}, {"new", "1"}}));
  ConvertOptions drop;
  drop.drop_metadata = true;
  drop.metadata = {{"new", "1"}};
  const auto plan = ConvertCheckpoint(fs, "/a.safetensors", "/drop.safetensors",
                                      std::move(drop));
  ASSERT_OK(plan);
  EXPECT_EQ(plan->dropped_metadata,
            (std::vector<std::string>{"license", "base"}));
  EXPECT_EQ(MetadataOf(fs, "/drop.safetensors"),
            (SafetensorsMetadata{{"format", "pt"}, {"new", "1"}}));
}

TEST(ConvertOutput, SaysWhichMetadataTheOutputCannotHold) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w",
                        {{"format", "pt"}, {"license", "mit"}});
  const auto plan = ConvertCheckpoint(fs, "/a.safetensors", "/b.pt", {});
  ASSERT_OK(plan);
  EXPECT_EQ(plan->dropped_metadata, std::vector<std::string>{"license"});
  ConvertOptions set;
  set.metadata = {{"license", "mit"}};
  EXPECT_THAT(
      ConvertCheckpoint(fs, "/a.safetensors", "/c.pt", std::move(set)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'license'")));
}

TEST(ConvertOutput, DigestsInAHeaderAreOfTheFileTheyAreIn) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w", {{"license", "mit"}});
  ASSERT_OK(ConvertCheckpoint(fs, "/a.safetensors", "/b.safetensors", {}));
  ASSERT_OK(ConvertCheckpoint(fs, "/b.safetensors", "/c.safetensors", {}));
  // The same tensors, the same bytes, digests included.
  const auto b = ReadFile(fs, "/b.safetensors", 1 << 20, false);
  const auto c = ReadFile(fs, "/c.safetensors", 1 << 20, false);
  ASSERT_OK(b);
  ASSERT_OK(c);
  EXPECT_EQ(*b, *c);
  EXPECT_THAT(*b, HasSubstr("tessera_digests"));
  EXPECT_EQ(MetadataOf(fs, "/c.safetensors"),
            (SafetensorsMetadata{{"format", "pt"}, {"license", "mit"}}));
  // One more name gives another digest; the old digests are not copied.
  ConvertOptions renamed;
  renamed.selection.renames = {"s/w/longer/"};
  ASSERT_OK(ConvertCheckpoint(fs, "/b.safetensors", "/d.safetensors",
                              std::move(renamed)));
  const auto report = VerifyCheckpoint(fs, "/d.safetensors", {});
  ASSERT_OK(report);
  EXPECT_TRUE(report->findings.empty());
  EXPECT_EQ(report->num_digests_checked, 1u);
  ASSERT_OK(ConvertCheckpoint(fs, "/b.safetensors", "/e.pt", {}));
  const auto diff = DiffCheckpoints(fs, "/a.safetensors", "/b.safetensors", {});
  ASSERT_OK(diff);
  EXPECT_TRUE(std::none_of(
      diff->findings.begin(), diff->findings.end(),
      [](const auto& finding) { return finding.name == "tessera_digests"; }));
}

TEST(ConvertOutput, GathersTheMetadataOfShards) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/d"));
  WriteSmallSafetensors(fs, "/d/1.safetensors", "v",
                        {{"format", "pt"}, {"run", "7"}});
  WriteSmallSafetensors(fs, "/d/2.safetensors", "w",
                        {{"format", "pt"}, {"run", "8"}, {"more", "x"}});
  EXPECT_EQ(
      MetadataOf(fs, "/d"),
      (SafetensorsMetadata{{"format", "pt"}, {"run", "7"}, {"more", "x"}}));
  const auto checkpoint = Checkpoint::Open(fs, "/d", {});
  ASSERT_OK(checkpoint);
  ASSERT_EQ((*checkpoint)->losses().size(), 1u);
  EXPECT_EQ((*checkpoint)->losses()[0].text,
            "the __metadata__ of the files differs in run: the first "
            "file by name counts");
}

// The help's own example, on the state of an optimizer.
TEST(ConvertOutput, PlacementPatternsLeaveScalarsReplicated) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());  // "c" is a scalar
  ConvertOptions options;
  options.mesh = *ParseMesh("x=2,y=2");
  options.placements = {{"*", *ParsePlacements("S(0),R")}};
  ASSERT_OK(ConvertCheckpoint(fs, "/a", "/b", std::move(options)));
  ExpectSame(fs, "/a", "/b");
  ConvertOptions named;
  named.mesh = *ParseMesh("x=2");
  named.placements = {{"c", *ParsePlacements("S(0)")}};
  EXPECT_THAT(ConvertCheckpoint(fs, "/a", "/d", std::move(named)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("c")));
}

TEST(ConvertOutput, RefusesAPlacementThatMatchesNothing) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  ConvertOptions options;
  options.mesh = *ParseMesh("x=2");
  options.placements = {{"weigth*", *ParsePlacements("S(0)")}};
  EXPECT_THAT(ConvertCheckpoint(fs, "/a", "/b", std::move(options)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("placement 'weigth*' matches no tensor")));
}

// A tensor in a .pt file may be a view: strides, and bits that say that its
// bytes are still to be conjugated or negated.
Value ViewTensor(ValueArena& arena, Value storage_class, int64_t num_elements,
                 std::vector<int64_t> sizes, std::vector<int64_t> strides,
                 absl::string_view lazy) {
  const auto ints = [&](const std::vector<int64_t>& numbers) {
    std::vector<Value> items;
    for (const int64_t number : numbers) items.push_back(Value::Int(number));
    return arena.Tuple(items);
  };
  const Value id = arena.Persistent(
      arena.Tuple({arena.Str("storage"), storage_class, arena.Str("0"),
                   arena.Str("cpu"), Value::Int(num_elements)}));
  std::vector<Value> args = {
      id,
      Value::Int(0),
      ints(sizes),
      ints(strides),
      Value::Bool(false),
      arena.Call(arena.Global("collections", "OrderedDict"), arena.Tuple({}))};
  if (!lazy.empty()) {
    args.push_back(arena.Dict({arena.Str(lazy), Value::Bool(true)}));
  }
  return arena.Call(arena.Global("torch._utils", "_rebuild_tensor_v2"),
                    arena.Tuple(args));
}

std::string ConvertView(absl::string_view storage_class, DType dtype,
                        std::vector<int64_t> sizes,
                        std::vector<int64_t> strides, absl::string_view lazy,
                        const std::vector<float>& stored) {
  SimStorage fs;
  ValueArena arena;
  const Dims shape(sizes.begin(), sizes.end());
  const auto num_elements =
      static_cast<int64_t>(stored.size() * 4 / ElementSize(dtype));
  const Value root = arena.Dict(
      {arena.Str("w"),
       ViewTensor(arena, arena.Global("torch", storage_class), num_elements,
                  std::move(sizes), std::move(strides), lazy)});
  EXPECT_OK(
      WriteFile(fs, "/w.pt",
                testing::TorchArchiveBytes(root, {testing::BytesOf(stored)})));
  EXPECT_OK(ConvertCheckpoint(fs, "/w.pt", "/dcp", {}));
  return LoadBytes(fs, "/dcp", "w", dtype, shape);
}

TEST(ConvertOutput, MakesATransposedTensorContiguous) {
  EXPECT_EQ(ConvertView("FloatStorage", DType::kFloat32, {3, 2}, {1, 3}, "",
                        {1, 2, 3, 4, 5, 6}),
            testing::BytesOf<float>({1, 4, 2, 5, 3, 6}));
}

TEST(ConvertOutput, CarriesOutLazyConjugation) {
  EXPECT_EQ(ConvertView("ComplexFloatStorage", DType::kComplex64, {2}, {1},
                        "conj", {1, 2, 3, 4}),
            testing::BytesOf<float>({1, -2, 3, -4}));
}

TEST(ConvertOutput, CarriesOutLazyNegation) {
  EXPECT_EQ(
      ConvertView("FloatStorage", DType::kFloat32, {3}, {1}, "neg", {1, -2, 3}),
      testing::BytesOf<float>({-1, 2, -3}));
}

}  // namespace
}  // namespace dcp
