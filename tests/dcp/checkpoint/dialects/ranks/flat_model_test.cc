// SPDX-License-Identifier: Apache-2.0
// The flat parameters that FSDP1 wrote (tests/golden/dialects/fsdp1), alone and
// with the user's facts about them; and the same in a DCP directory.
#include "dcp/checkpoint/dialects/ranks/flat_model.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/dialects/ranks/flat_hints.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/dcp/checkpoint/open/dialects/ranks/rank_checkpoint.h"
#include "tests/dcp/format/rank_values.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::LoadAll;
using ::dcp::testing::MakeShardedTensor;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::RankCheckpoint;
using ::dcp::testing::ReadFile;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::ShardedSpec;
using ::dcp::testing::SmallTensor;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::WarningText;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Bytes = std::map<std::string, std::string>;

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenFlatModel(
    const std::string& path, DialectOptions options) {
  return Checkpoint::Open(Disk(), path, {.dialect = std::move(options)});
}

// Checks that each parameter in the layout, and the optimizer's state for it if
// `prefixes` say so, is the flat tensor's range that the layout gives it.
void ExpectRanges(const Bytes& whole, const Bytes& flat,
                  const FlatHints& layout) {
  size_t num_compared = 0;
  for (const auto& [name, bytes] : flat) {
    for (const auto& [key, unit] : layout.units) {
      const size_t at = name.find(absl::StrCat(".", key));
      if (at == std::string::npos ||
          // "_flat_param" also ends "layers.0._flat_param".
          (key == "_flat_param" && name.find("layers") != std::string::npos)) {
        continue;
      }
      for (const FlatParameter& parameter : unit.parameters) {
        std::string named = name;
        named.replace(at + 1, key.size(), parameter.name);
        SCOPED_TRACE(named);
        ASSERT_TRUE(whole.contains(named));
        if (absl::EndsWith(name, ".step")) {
          EXPECT_EQ(whole.at(named), bytes);
          continue;
        }
        EXPECT_EQ(whole.at(named),
                  bytes.substr(static_cast<size_t>(parameter.begin) * 4,
                               static_cast<size_t>(parameter.numel) * 4));
        ++num_compared;
      }
    }
  }
  EXPECT_GE(num_compared, 14u);
}

// Both with a pickle for each rank and in a DCP directory.
TEST(FlatModel, ALayoutNamesTheParameters) {
  for (const char* test : {"pickle_local_ws2", "dcp_local_ws2"}) {
    SCOPED_TRACE(test);
    const TempDir dir;
    const std::string base = absl::StrCat("dialects/fsdp1/", test);
    const std::string layout =
        CopyGolden(dir, absl::StrCat(base, ".layout.json"));
    FlatHints hints;
    ASSERT_OK(ParseFlatLayout(ReadFile(layout), hints));
    ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<Checkpoint> checkpoint,
        OpenFlatModel(CopyGolden(dir, base),
                      {.layout = layout, .optimizer_in_model_order = true}));
    EXPECT_THAT(WarningText(*checkpoint), IsEmpty());
    ASSERT_OK(checkpoint->LocateAll());
    ASSERT_OK_AND_ASSIGN(const Bytes whole, LoadAll(*checkpoint));
    ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<Checkpoint> expected,
        OpenCheckpoint(
            CopyGolden(dir, absl::StrCat(base, ".expected.safetensors"))));
    ASSERT_OK_AND_ASSIGN(const Bytes flat, LoadAll(*expected));
    ExpectRanges(whole, flat, hints);
    const auto embed = checkpoint->Find("model.embed.weight");
    ASSERT_TRUE(embed.has_value());
    EXPECT_EQ(checkpoint->entries()[*embed].tensor()->shape, Dims({13, 6}));
    for (const CheckpointEntry& entry : checkpoint->entries()) {
      EXPECT_FALSE(absl::StrContains(entry.fqn, "_flat_param")) << entry.fqn;
    }
  }
}

TEST(FlatModel, ViewsTakeShapesFromALayoutOrACheckpoint) {
  const TempDir dir;
  const std::string base = "dialects/fsdp1/pickle_local_origparams_ws3";
  const std::string path = CopyGolden(dir, base);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> plain,
                       OpenFlatModel(path, {.optimizer_in_model_order = true}));
  EXPECT_THAT(WarningText(*plain), HasSubstr("the option like or"));
  ASSERT_OK_AND_ASSIGN(const Bytes wanted, LoadAll(*plain));
  const std::string layout =
      CopyGolden(dir, absl::StrCat(base, ".layout.json"));
  FlatHints hints;
  ASSERT_OK(ParseFlatLayout(ReadFile(layout), hints));
  std::vector<SmallTensor> full;
  for (const auto& [name, shape] : hints.shapes) {
    full.push_back({name, DType::kUInt8, shape,
                    std::string(static_cast<size_t>(Volume(shape)), 'x')});
  }
  const std::string like =
      dir.WriteFile("full.safetensors", SafetensorsBytes(full));
  for (const DialectOptions& options :
       {DialectOptions{.layout = layout, .optimizer_in_model_order = true},
        DialectOptions{.like = like, .optimizer_in_model_order = true}}) {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                         OpenFlatModel(path, options));
    EXPECT_THAT(WarningText(*checkpoint), IsEmpty());
    ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
    EXPECT_EQ(found, wanted);
    for (const char* name :
         {"model.layers.1.down.weight",
          "optimizer.state.layers.1.down.weight.exp_avg_sq"}) {
      const auto index = checkpoint->Find(name);
      ASSERT_TRUE(index.has_value()) << name;
      EXPECT_EQ(checkpoint->entries()[*index].tensor()->shape, Dims({6, 7}));
    }
  }
}

TEST(FlatModel, WithoutALayoutTheVectorsStay) {
  for (const char* test : {"pickle_local_ws2", "dcp_local_ws2"}) {
    SCOPED_TRACE(test);
    const TempDir dir;
    ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<Checkpoint> checkpoint,
        OpenCheckpoint(CopyGolden(dir, absl::StrCat("dialects/fsdp1/", test))));
    EXPECT_THAT(WarningText(*checkpoint),
                AllOf(HasSubstr("flat parameters of FSDP1"),
                      HasSubstr("the option layout")));
  }
}

// ---- Small checkpoints by two ranks, one flat parameter with 5 elements -----

class FlatModelFilesTest : public ::testing::Test {
 protected:
  Value Flat(int64_t rank, const ShardedSpec& change = {}) {
    ShardedSpec spec{.shape = {5},
                     .offsets = {rank * 3},
                     .sizes = {rank == 0 ? 3 : 2},
                     .key = "0",
                     .rank = rank,
                     .world_size = 2};
    if (!change.shape.empty()) spec.shape = change.shape;
    if (!change.offsets.empty()) spec.offsets = change.offsets;
    if (!change.sizes.empty()) spec.sizes = change.sizes;
    if (change.world_size != 1) spec.world_size = change.world_size;
    return MakeShardedTensor(files_.arena(), spec);
  }
  void AddRank(int64_t rank, Value flat) {
    ValueArena& arena = files_.arena();
    files_.Add(absl::StrCat("m.rank_", rank, ".pt"),
               arena.Dict({arena.Str("model"),
                           arena.Dict({arena.Str("_flat_param"), flat})}),
               {rank == 0 ? "abc" : "de"});
  }
  std::string Layout(absl::string_view params) {
    return dir_.WriteFile(
        "layout.json",
        absl::StrCat(R"([{"flat": "_flat_param", "params": [)", params, "]}]"));
  }

  TempDir dir_;
  RankCheckpoint files_;
};

TEST_F(FlatModelFilesTest, ParametersCrossRanks) {
  AddRank(0, Flat(0));
  AddRank(1, Flat(1));
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenFlatModel(files_.Write(dir_), {.layout = Layout(
                                             R"({"name": "a", "shape": [2, 2]},
                                       {"name": "s", "shape": []})")}));
  ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
  EXPECT_EQ(found, (Bytes{{"model.a", "abcd"}, {"model.s", "e"}}));
}

TEST_F(FlatModelFilesTest, RanksThatContradictEachOtherAreRefused) {
  const struct {
    ShardedSpec change;  // on rank 1
    std::string message;
  } cases[] = {
      {{.shape = {6}}, "6 elements, but 5"},
      {{.offsets = {2}}, "from 2 on, expected from 3 on"},
      {{.offsets = {3}, .sizes = {1}}, "expected a vector of 3 elements"},
      {{.world_size = 3}, "rank 1 of 2, but the contents belong to"},
      {{.shape = {5, 1}, .offsets = {3, 0}, .sizes = {2, 1}},
       "expected at most one piece of a vector"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.message);
    files_.Clear();
    AddRank(0, Flat(0));
    AddRank(1, Flat(1, test.change));
    EXPECT_THAT(OpenFlatModel(files_.Write(dir_), {}),
                StatusIs(StatusCode::kDataLoss, HasSubstr(test.message)));
  }
  files_.Clear();
  AddRank(0, Flat(0));
  AddRank(1, Value::Int(1));
  EXPECT_THAT(OpenFlatModel(files_.Write(dir_), {}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("m.rank_1.pt")));
}

TEST_F(FlatModelFilesTest, HintsThatDoNotFitAreRefused) {
  AddRank(0, Flat(0));
  AddRank(1, Flat(1));
  const std::string path = files_.Write(dir_);
  EXPECT_THAT(
      OpenFlatModel(path, {.layout = Layout(R"({"name": "a", "shape": [4]})")}),
      StatusIs(StatusCode::kInvalidArgument,
               AllOf(HasSubstr("4 elements"), HasSubstr("has 5"))));
  const std::string like = dir_.WriteFile(
      "full.safetensors", SafetensorsBytes({{"a", DType::kUInt8, {1}, "x"}}));
  EXPECT_THAT(OpenFlatModel(path, {.like = like}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("use the option layout")));
}

}  // namespace
}  // namespace dcp
