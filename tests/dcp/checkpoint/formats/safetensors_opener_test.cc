// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/safetensors_opener.h"

#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/safetensors/safetensors_index.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::BytesOf;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::GetEntry;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::SmallTensor;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

SmallTensor Floats(const char* name, const std::vector<float>& values) {
  return {name,
          DType::kFloat32,
          {static_cast<int64_t>(values.size())},
          BytesOf<float>(values)};
}

// A shard as DCP's Hugging Face writer leaves it: w at `offset`.
std::string Shard(const std::vector<float>& values, int64_t offset) {
  return SafetensorsBytes(
      {Floats("w", values)},
      {{"DCP_SHARDING_INFO",
        absl::StrCat("{\"w\": {\"saved_offsets\": [", offset, "]}}")}});
}

// An index that puts each name into a file.
using WeightMap = std::vector<std::pair<std::string, std::string>>;
std::string ShardIndexText(const WeightMap& weight_map) {
  return WriteSafetensorsIndex(4, weight_map);
}

// One such file may be given without the index, which says so too.
TEST(SafetensorsOpener, RefusesDifferencesBetweenWeights) {
  const TempDir dir;
  const SmallTensor frame = {"w", DType::kUInt8, {3}, "abc"};
  const std::string delta = dir.WriteFile(
      "delta.safetensors", SafetensorsBytes({frame}, {{"w", "0a1b2c3d"}}));
  EXPECT_THAT(OpenCheckpoint(delta),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("compressed differences from another")));
  EXPECT_OK(OpenCheckpoint(dir.WriteFile(
      "bytes.safetensors", SafetensorsBytes({frame}, {{"w", "its use"}}))));
  EXPECT_OK(OpenCheckpoint(dir.WriteFile(
      "full.safetensors",
      SafetensorsBytes({frame, Floats("x", {1})}, {{"w", "0a1b2c3d"}}))));
}

TEST(SafetensorsOpener, OneFileIsLocatedAtOnce) {
  const TempDir dir;
  const std::string path = dir.WriteFile(
      "m.safetensors",
      SafetensorsBytes({Floats("w", {1, 2})}, {{"format", "pt"}}));
  ASSERT_OK_AND_ASSIGN(const CheckpointParts parts,
                       OpenSafetensors(Disk(), OneModelFile(path), {}));
  ASSERT_EQ(parts.entries.size(), 1u);
  EXPECT_EQ(parts.entries[0].path, StatePath{PathElement("w")});
  EXPECT_TRUE(parts.entries[0].tensor()->locations[0].located);
  EXPECT_THAT(parts.properties,
              ::testing::ElementsAre(std::pair("format", "pt")));
}

TEST(SafetensorsOpener, AnIndexChoosesTheFiles) {
  const TempDir dir;
  dir.WriteFile("m/a.safetensors", SafetensorsBytes({Floats("a", {1})}));
  dir.WriteFile("m/b.safetensors", SafetensorsBytes({Floats("b", {2})}));
  dir.WriteFile("m/unlisted.safetensors", SafetensorsBytes({Floats("a", {3})}));
  dir.WriteFile(
      "m/model.safetensors.index.json",
      ShardIndexText({{"a", "a.safetensors"}, {"b", "b.safetensors"}}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("m")));
  EXPECT_EQ(checkpoint->entries().size(), 2u);
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadAll(*checkpoint));
  EXPECT_EQ(loaded["a"], BytesOf<float>({1}));
  EXPECT_EQ(loaded["b"], BytesOf<float>({2}));
}

TEST(SafetensorsOpener, ShardsAreJoinedByTheirOffsets) {
  const TempDir dir;
  dir.WriteFile("m/shard-00001.safetensors", Shard({1, 2}, 0));
  dir.WriteFile("m/shard-00002.safetensors", Shard({3}, 2));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("m")));
  EXPECT_EQ(GetEntry(*checkpoint, "w").tensor()->shape, Dims({3}));
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadAll(*checkpoint));
  EXPECT_EQ(loaded["w"], BytesOf<float>({1, 2, 3}));
}

// Why the tensor w cannot be read in the model in `directory`; the model opens,
// and everything else can be read.
absl::Status ReadProblem(const std::string& directory) {
  const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
      OpenCheckpoint(directory);
  if (!checkpoint.ok()) return checkpoint.status();
  return (*checkpoint)->Locate({*(*checkpoint)->Find("w")});
}

TEST(SafetensorsOpener, ShardsThatDoNotMakeAWholeCannotBeRead) {
  const TempDir dir;
  dir.WriteFile("hole/1.safetensors", Shard({1}, 0));
  dir.WriteFile("hole/2.safetensors", Shard({1}, 2));
  EXPECT_THAT(
      ReadProblem(dir.Join("hole")),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("w, whose first part is in 1.safetensors: 1 of 3")));
  dir.WriteFile("overlap/1.safetensors", Shard({1, 2}, 0));
  dir.WriteFile("overlap/2.safetensors", Shard({1}, 1));
  EXPECT_THAT(ReadProblem(dir.Join("overlap")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("overlap")));
  dir.WriteFile("types/1.safetensors", Shard({1}, 0));
  dir.WriteFile(
      "types/2.safetensors",
      SafetensorsBytes({{"w", DType::kInt32, {1}, BytesOf<int32_t>({1})}}));
  EXPECT_THAT(
      ReadProblem(dir.Join("types")),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("w is float32 of 1 dimensions in 1.safetensors, and "
                         "int32 of 1 in 2.safetensors")));
}

TEST(SafetensorsOpener, ATensorInTwoFilesDoesNotStopTheOthers) {
  const TempDir dir;
  dir.WriteFile("m/1.safetensors",
                SafetensorsBytes({Floats("w", {1}), Floats("a", {2})}));
  dir.WriteFile("m/2.safetensors", SafetensorsBytes({Floats("w", {3})}));
  EXPECT_THAT(
      ReadProblem(dir.Join("m")),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("w is in 1.safetensors and in 2.safetensors, and no "
                         "index says which of them counts: the option "
                         "exclude")));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("m")));
  EXPECT_OK(checkpoint->Locate({*checkpoint->Find("a")}));
  EXPECT_THAT(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("n"), {}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("w is in")));
  ConvertOptions options;
  options.selection.exclude = {"w"};
  EXPECT_OK(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("n"),
                              std::move(options)));
  EXPECT_OK(OpenCheckpoint(dir.Join("n")));
}

TEST(SafetensorsOpener, TheIndexDecidesWhichTensorsCount) {
  const TempDir dir;
  // An overlay: b.safetensors replaces w, and nobody needs "old".
  dir.WriteFile("m/a.safetensors",
                SafetensorsBytes({Floats("a", {1}), Floats("w", {8, 9}),
                                  Floats("old", {7})}));
  dir.WriteFile("m/b.safetensors", SafetensorsBytes({Floats("w", {2})}));
  dir.WriteFile(
      "m/model.safetensors.index.json",
      ShardIndexText({{"a", "a.safetensors"}, {"w", "b.safetensors"}}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("m")));
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadAll(*checkpoint));
  EXPECT_THAT(loaded,
              ::testing::ElementsAre(std::pair("a", BytesOf<float>({1})),
                                     std::pair("w", BytesOf<float>({2}))));
  EXPECT_THAT(LossTexts(checkpoint->losses()),
              ::testing::ElementsAre(
                  "old, which the index does not name, are left out"));
}

TEST(SafetensorsOpener, SurplusIsLeftOutOfConversions) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, "edges/surplus");
  ASSERT_OK(ConvertCheckpoint(Disk(), path, dir.Join("o.safetensors"), {}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("o.safetensors")));
  ASSERT_EQ(checkpoint->entries().size(), 1u);
  EXPECT_EQ(checkpoint->entries()[0].fqn, "l0");
}

TEST(SafetensorsOpener, ANameInTwoShardsCanBeExcluded) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, "edges/in_two_files");
  EXPECT_THAT(ConvertCheckpoint(Disk(), path, dir.Join("o.safetensors"), {}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("layers.0.w is in "
                                 "model-00001-of-00003.safetensors and in "
                                 "model-00002-of-00003.safetensors")));
  ConvertOptions options;
  options.selection.exclude = {"layers.0.w"};
  EXPECT_OK(ConvertCheckpoint(Disk(), path, dir.Join("o.safetensors"),
                              std::move(options)));
}

// DCP's Hugging Face writer leaves an index with each name once.
TEST(SafetensorsOpener, AnIndexCountsAllPartsOfATensor) {
  const TempDir dir;
  dir.WriteFile("m/1.safetensors", Shard({1, 2}, 0));
  dir.WriteFile("m/2.safetensors", Shard({3}, 2));
  dir.WriteFile("m/n.safetensors", SafetensorsBytes({Floats("n", {4})}));
  dir.WriteFile("m/model.safetensors.index.json",
                ShardIndexText({{"w", "2.safetensors"},
                                {"v", "1.safetensors"},
                                {"n", "n.safetensors"}}));
  EXPECT_THAT(OpenCheckpoint(dir.Join("m")),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("v is in 1.safetensors, which lacks it")));
  dir.WriteFile("m/1.safetensors",
                SafetensorsBytes({Floats("v", {5}), Floats("w", {1, 2})},
                                 {{"DCP_SHARDING_INFO",
                                   "{\"v\": {\"saved_offsets\": [0]}, "
                                   "\"w\": {\"saved_offsets\": [0]}}"}}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("m")));
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadAll(*checkpoint));
  EXPECT_EQ(loaded["w"], BytesOf<float>({1, 2, 3}));
}

// Diffusers' and transformers' names for a variant.
TEST(SafetensorsOpener, TheIndexOfAVariantIsAnIndex) {
  const TempDir dir;
  dir.WriteFile("m/a.fp16.safetensors", SafetensorsBytes({Floats("a", {1})}));
  dir.WriteFile("m/b.fp16.safetensors",
                SafetensorsBytes({Floats("b", {2}), Floats("c", {3})}));
  const std::string index = ShardIndexText(
      {{"a", "a.fp16.safetensors"}, {"b", "b.fp16.safetensors"}});
  const std::string path =
      dir.WriteFile("m/model.safetensors.index.fp16.json", index);
  for (const std::string& opened : {dir.Join("m"), path}) {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                         OpenCheckpoint(opened));
    EXPECT_EQ(checkpoint->entries().size(), 2u);
  }
  dir.WriteFile("m/model.safetensors.index.json", index);
  EXPECT_THAT(OpenCheckpoint(dir.Join("m")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("model.safetensors.index.fp16.json, "
                                 "model.safetensors.index.json; give the "
                                 "path")));
}

TEST(SafetensorsOpener, RefusesShardsThatAreTooLarge) {
  const TempDir dir;
  dir.WriteFile("m/1.safetensors", Shard({1}, 0));
  dir.WriteFile("m/2.safetensors", Shard({1}, INT64_MAX));
  EXPECT_THAT(OpenCheckpoint(dir.Join("m")),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(SafetensorsOpener, ChecksTheIndex) {
  const TempDir dir;
  dir.WriteFile("m/a.safetensors", SafetensorsBytes({Floats("a", {1})}));
  const auto open_with = [&](const std::string& index) {
    dir.WriteFile("m/model.safetensors.index.json", index);
    return OpenCheckpoint(dir.Join("m")).status();
  };
  EXPECT_THAT(open_with(ShardIndexText(
                  {{"a", "a.safetensors"}, {"b", "a.safetensors"}})),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("b is in a.safetensors, which lacks it")));
  EXPECT_THAT(
      open_with(ShardIndexText({{"a", "absent.safetensors"}})),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.safetensors")));
  EXPECT_THAT(open_with(ShardIndexText({{"a", "../m/a.safetensors"}})),
              StatusIs(::testing::_, HasSubstr("..")));
  EXPECT_THAT(open_with("{"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("index.json")));
}

TEST(SafetensorsOpener, RefusesTwoModelsInADirectory) {
  const TempDir dir;
  dir.WriteFile("m/a.safetensors", SafetensorsBytes({Floats("a", {1})}));
  const std::string index = ShardIndexText({{"a", "a.safetensors"}});
  dir.WriteFile("m/model.safetensors.index.json", index);
  dir.WriteFile("m/model.fp16.safetensors.index.json", index);
  EXPECT_THAT(OpenCheckpoint(dir.Join("m")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("several models")));
}

// A model hub's cache names the blobs by links.
TEST(SafetensorsOpener, FollowsLinks) {
  const TempDir dir;
  dir.WriteFile("blobs/1234", SafetensorsBytes({Floats("a", {1})}));
  dir.WriteFile("snapshot/readme", "");
  ASSERT_EQ(
      symlink("../blobs/1234", dir.Join("snapshot/model.safetensors").c_str()),
      0);
  EXPECT_OK(OpenCheckpoint(dir.Join("snapshot")));
}

TEST(SafetensorsOpener, RefusesEveryTruncation) {
  const TempDir dir;
  const std::string whole = SafetensorsBytes({Floats("a", {1, 2})});
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(
        OpenCheckpoint(dir.WriteFile("m.safetensors", whole.substr(0, length))),
        StatusIs(absl::StatusCode::kDataLoss))
        << length;
  }
}

}  // namespace
}  // namespace dcp
