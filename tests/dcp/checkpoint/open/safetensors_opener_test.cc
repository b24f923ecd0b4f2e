#include "dcp/checkpoint/open/safetensors_opener.h"

#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/safetensors_index.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::BytesOf;
using ::dcp::testing::Disk;
using ::dcp::testing::EntryOf;
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
std::string ShardIndexOf(const WeightMap& weight_map) {
  return WriteSafetensorsIndex(4, weight_map);
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
  dir.WriteFile("m/model.safetensors.index.json",
                ShardIndexOf({{"a", "a.safetensors"}, {"b", "b.safetensors"}}));
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
  EXPECT_EQ(EntryOf(*checkpoint, "w").tensor()->shape, Dims({3}));
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadAll(*checkpoint));
  EXPECT_EQ(loaded["w"], BytesOf<float>({1, 2, 3}));
}

TEST(SafetensorsOpener, RefusesShardsThatDoNotMakeAWhole) {
  const TempDir dir;
  dir.WriteFile("hole/1.safetensors", Shard({1}, 0));
  dir.WriteFile("hole/2.safetensors", Shard({1}, 2));
  EXPECT_THAT(
      OpenCheckpoint(dir.Join("hole")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("w: 1 of 3 elements")));
  dir.WriteFile("overlap/1.safetensors", Shard({1, 2}, 0));
  dir.WriteFile("overlap/2.safetensors", Shard({1}, 1));
  EXPECT_THAT(OpenCheckpoint(dir.Join("overlap")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("overlap")));
  dir.WriteFile("types/1.safetensors", Shard({1}, 0));
  dir.WriteFile(
      "types/2.safetensors",
      SafetensorsBytes({{"w", DType::kInt32, {1}, BytesOf<int32_t>({1})}}));
  EXPECT_THAT(
      OpenCheckpoint(dir.Join("types")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("2.safetensors")));
}

TEST(SafetensorsOpener, RefusesShardsBeyondWhatCanBe) {
  const TempDir dir;
  dir.WriteFile("m/1.safetensors", Shard({1}, 0));
  dir.WriteFile("m/2.safetensors", Shard({1}, INT64_MAX));
  EXPECT_THAT(OpenCheckpoint(dir.Join("m")),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(SafetensorsOpener, TheIndexMustBeTrue) {
  const TempDir dir;
  dir.WriteFile("m/a.safetensors", SafetensorsBytes({Floats("a", {1})}));
  const auto open_with = [&](const std::string& index) {
    dir.WriteFile("m/model.safetensors.index.json", index);
    return OpenCheckpoint(dir.Join("m")).status();
  };
  EXPECT_THAT(
      open_with(ShardIndexOf({{"a", "a.safetensors"}, {"b", "a.safetensors"}})),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("b is in a.safetensors, which lacks it")));
  EXPECT_THAT(
      open_with(ShardIndexOf({{"a", "absent.safetensors"}})),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.safetensors")));
  EXPECT_THAT(open_with(ShardIndexOf({{"a", "../m/a.safetensors"}})),
              StatusIs(::testing::_, HasSubstr("..")));
  EXPECT_THAT(open_with("{"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("index.json")));
}

TEST(SafetensorsOpener, RefusesTwoModelsInADirectory) {
  const TempDir dir;
  dir.WriteFile("m/a.safetensors", SafetensorsBytes({Floats("a", {1})}));
  const std::string index = ShardIndexOf({{"a", "a.safetensors"}});
  dir.WriteFile("m/model.safetensors.index.json", index);
  dir.WriteFile("m/model.fp16.safetensors.index.json", index);
  EXPECT_THAT(OpenCheckpoint(dir.Join("m")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("several models")));
}

// The cache of a model hub names its blobs by links.
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
