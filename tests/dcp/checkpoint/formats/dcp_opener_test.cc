// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/dcp_opener.h"

#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/index/dcp_metadata.h"
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
using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::GetEntry;
using ::dcp::testing::ObjectItem;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TensorItem;
using ::testing::HasSubstr;

DcpBuilder SmallCheckpoint() {
  DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  builder.AddTensor("w", DType::kFloat32, {2}, BytesOf<float>({1, 2}));
  builder.AddObject("step", ObjectItem(Value::Int(7)));
  return builder;
}

TEST(DcpOpener, ReadsTheIndexAndNoItem) {
  const TempDir dir;
  DcpBuilder builder = SmallCheckpoint();
  builder.metadata().save_id = "some id";
  builder.files()[0].clear();  // not examined
  ASSERT_OK_AND_ASSIGN(
      const CheckpointParts parts,
      OpenDcp(Disk(), builder.Write(dir, "c"), kDcpMetadataName, {}));
  EXPECT_EQ(parts.format, Format::kDcp);
  EXPECT_TRUE(parts.flattened);
  ASSERT_EQ(parts.entries.size(), 2u);
  EXPECT_EQ(parts.entries[0].tensor()->boxes[0], WholeBox({2}));
  EXPECT_FALSE(parts.entries[0].tensor()->locations[0].located);
  EXPECT_FALSE(parts.entries[1].object()->located);
  EXPECT_THAT(parts.properties,
              ::testing::Contains(std::pair("save id", "some id")));
}

TEST(DcpOpener, ReportsACheckpointWithoutFlattening) {
  const TempDir dir;
  DcpBuilder builder = SmallCheckpoint();
  builder.metadata().has_planner_data = false;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(builder.Write(dir, "c")));
  EXPECT_FALSE(checkpoint->flattened());
  EXPECT_TRUE(GetEntry(*checkpoint, "w").path.empty());
}

TEST(DcpOpener, RefusesHolesAndOverlaps) {
  const std::string item =
      TensorItem(DType::kFloat32, {1}, BytesOf<float>({1}));
  DcpBuilder hole;
  hole.StartFile("f");
  hole.AddChunk("w", DType::kFloat32, {3}, {{0}, {1}}, item);
  hole.AddChunk("w", DType::kFloat32, {3}, {{2}, {1}}, item);
  const TempDir dir;
  EXPECT_THAT(
      OpenCheckpoint(hole.Write(dir, "hole")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("w: 1 of 3 elements")));

  DcpBuilder overlap;
  overlap.StartFile("f");
  overlap.AddChunk("w", DType::kFloat32, {3}, {{0}, {2}}, item);
  overlap.AddChunk("w", DType::kFloat32, {3}, {{1}, {2}}, item);
  EXPECT_THAT(OpenCheckpoint(overlap.Write(dir, "overlap")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("overlap")));
}

TEST(DcpOpener, RequiresARegularIndexFile) {
  const TempDir dir;
  const std::string path = SmallCheckpoint().Write(dir, "c");
  ASSERT_EQ(rename(dir.Join("c/.metadata").c_str(), dir.Join("moved").c_str()),
            0);
  ASSERT_EQ(symlink("../moved", dir.Join("c/.metadata").c_str()), 0);
  EXPECT_THAT(OpenCheckpoint(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("symbolic link")));
  ASSERT_EQ(unlink(dir.Join("c/.metadata").c_str()), 0);
  ASSERT_EQ(mkfifo(dir.Join("c/.metadata").c_str(), 0600), 0);
  EXPECT_THAT(OpenCheckpoint(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("not a regular file")));
  ASSERT_EQ(unlink(dir.Join("c/.metadata").c_str()), 0);
  dir.WriteFile("c/.metadata/file", "");
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(DcpOpener, RefusesAnIndexCutShort) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, "torch-2.11/sharded");
  const std::string index = testing::ReadFile(path + "/.metadata");
  for (const size_t length :
       {size_t{0}, size_t{1}, index.size() / 2, index.size() - 1}) {
    dir.WriteFile("torch-2.11/sharded/.metadata", index.substr(0, length));
    EXPECT_THAT(OpenCheckpoint(path),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(".metadata")))
        << length;
  }
}

TEST(DcpOpener, IndexNamesOfRanksAreLikePyTorchs) {
  EXPECT_EQ(RankMetadataName(12), "__12.metadata");
  EXPECT_EQ(ParseRankMetadataName("__12.metadata"), 12);
  for (const char* name : {".metadata", "__.metadata", "__01.metadata",
                           "__-1.metadata", "__1.metadata.tmp", "1.metadata"}) {
    EXPECT_EQ(ParseRankMetadataName(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace dcp
