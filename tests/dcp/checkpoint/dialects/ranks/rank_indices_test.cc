// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/rank_indices.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::GetEntry;
using ::dcp::testing::LoadAll;
using ::dcp::testing::ObjectItem;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TensorItem;
using ::testing::HasSubstr;

using Bytes = std::map<std::string, std::string>;

// Two rows of "w" on each rank, a replica, and values that differ by rank.
class RankIndicesTest : public ::testing::Test {
 protected:
  DcpBuilder Rank(int64_t rank, absl::string_view rows) {
    DcpBuilder builder;
    builder.StartFile(absl::StrCat("__", rank, "_0.distcp"));
    builder.AddChunk("w", DType::kUInt8, {4, 1}, {{2 * rank, 0}, {2, 1}},
                     TensorItem(DType::kUInt8, {2, 1}, rows));
    builder.AddTensor("replica", DType::kUInt8, {2}, "xy");
    builder.AddTensor("own", DType::kUInt8, {1}, rank == 0 ? "0" : "1");
    builder.AddObject("epoch", ObjectItem(Value::Int(3)));
    builder.AddObject("rank", ObjectItem(Value::Int(rank)));
    return builder;
  }
  std::string Write(int64_t rank, const DcpBuilder& builder) {
    return builder.Write(dir_, "c", RankMetadataName(rank));
  }

  TempDir dir_;
};

TEST_F(RankIndicesTest, AreReadTogether) {
  Write(0, Rank(0, "ab"));
  const std::string path = Write(1, Rank(1, "cd"));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
  EXPECT_EQ(
      found,
      (Bytes{{"w", "abcd"}, {"replica", "xy"}, {"own", "0"}, {"own@1", "1"}}));
  EXPECT_FALSE(checkpoint->Find("epoch@1").has_value());
  EXPECT_EQ(GetEntry(*checkpoint, "rank@1").object()->value.int_value(), 1);
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       VerifyCheckpoint(Disk(), path, {}));
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.num_items_unchecked, 0u);
  // After a conversion, PyTorch reads it on any number of ranks.
  ASSERT_OK(ConvertCheckpoint(Disk(), path, dir_.Join("d"), {}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> copy,
                       OpenCheckpoint(dir_.Join("d")));
  ASSERT_OK_AND_ASSIGN(const Bytes copied, LoadAll(*copy));
  EXPECT_EQ(copied, found);
}

TEST_F(RankIndicesTest, ARankThatIsMissingIsNamed) {
  Write(0, Rank(0, "ab"));
  Write(1, Rank(1, "cd"));
  const std::string path = Write(4, Rank(1, "ef"));
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("these ranks are missing: 2, 3")));
  std::filesystem::remove(dir_.Join("c/__4.metadata"));
  std::filesystem::remove(dir_.Join("c/__1.metadata"));
  // Nobody knows how many ranks there were, but the rows of "w" do.
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(StatusCode::kDataLoss, HasSubstr("w: ")));
}

TEST_F(RankIndicesTest, RanksThatContradictEachOtherAreRefused) {
  Write(0, Rank(0, "ab"));
  DcpBuilder other;
  other.StartFile("__1_0.distcp");
  other.AddChunk("w", DType::kUInt8, {4, 2}, {{2, 0}, {2, 2}},
                 TensorItem(DType::kUInt8, {2, 2}, "cdef"));
  EXPECT_THAT(OpenCheckpoint(Write(1, other)),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("w is uint8 [4, 2] on rank 1")));
  DcpBuilder overlapping;
  overlapping.StartFile("__1_0.distcp");
  overlapping.AddChunk("w", DType::kUInt8, {4, 1}, {{1, 0}, {3, 1}},
                       TensorItem(DType::kUInt8, {3, 1}, "bcd"));
  EXPECT_THAT(OpenCheckpoint(Write(1, overlapping)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("overlap")));
}

TEST_F(RankIndicesTest, OneRankMayBeChosen) {
  DcpBuilder own;
  own.StartFile("__1_0.distcp");
  own.AddTensor("v", DType::kFloat32, {1}, "1234");
  Write(0, Rank(0, "ab"));
  const std::string path = Write(1, own);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       Checkpoint::Open(Disk(), path, {.rank = 1}));
  EXPECT_EQ(checkpoint->entries()[0].fqn, "v");
  EXPECT_EQ(checkpoint->entries().size(), 1u);
  EXPECT_THAT(Checkpoint::Open(Disk(), path, {.rank = 2}),
              StatusIs(StatusCode::kNotFound, HasSubstr("__2.metadata")));
  EXPECT_THAT(
      Checkpoint::Open(Disk(), path, {.rank = 0}),
      StatusIs(StatusCode::kDataLoss, HasSubstr("without the option rank")));
}

}  // namespace
}  // namespace dcp
