// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/megatron/common_state.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::BytesOf;
using ::dcp::testing::Disk;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommonStateTest : public ::testing::Test {
 protected:
  // Reads `archive`, which is in a file after 100 other bytes.
  absl::StatusOr<std::vector<CheckpointEntry>> Read(
      const std::string& archive) {
    dir_.WriteFile("file", absl::StrCat(std::string(100, 'x'), archive));
    parts_ = CheckpointParts();
    parts_.files = std::make_unique<SourceFiles>(
        Disk(), dir_.path(), std::vector<std::string>{"file"},
        DirectMode::kAuto, /*follow_symlinks=*/false);
    return ReadCommonState(Disk(),
                           {.file = 0, .offset = 100, .length = archive.size()},
                           {}, parts_);
  }

  TempDir dir_;
  ValueArena arena_;
  CheckpointParts parts_;
};

std::vector<std::string> EntryNames(
    const std::vector<CheckpointEntry>& entries) {
  std::vector<std::string> names;
  for (const CheckpointEntry& entry : entries) names.push_back(entry.fqn);
  return names;
}

TEST_F(CommonStateTest, LeavesGetNamesAndPlaces) {
  const Value tensor = MakeTensor(arena_, DType::kFloat32, {3},
                                  /*requires_grad=*/false, "0");
  const Value root = arena_.Dict(
      {arena_.Str("iteration"), Value::Int(7), arena_.Str("optimizer"),
       arena_.Dict(
           {arena_.Str("param_groups"),
            arena_.List({arena_.Dict({arena_.Str("step"), Value::Int(5)})})}),
       arena_.Str("t"), tensor});
  // As common.pt, and as a ShardedObject's value.
  for (const Value& value : {root, arena_.List({root})}) {
    const std::string payload = BytesOf<float>({1, 2, 3});
    const std::string archive = TorchArchiveBytes(value, {payload});
    ASSERT_OK_AND_ASSIGN(const std::vector<CheckpointEntry> entries,
                         Read(archive));
    EXPECT_THAT(
        EntryNames(entries),
        ElementsAre("common.iteration", "common.optimizer.param_groups.0.step",
                    "common.t"));
    EXPECT_EQ(entries[0].object()->value.int_value(), 7);
    EXPECT_TRUE(entries[0].object()->located);
    EXPECT_THAT(entries[1].path,
                ElementsAre("common", "optimizer", "param_groups", 0, "step"));
    ASSERT_NE(entries[2].tensor(), nullptr);
    EXPECT_EQ(entries[2].tensor()->locations[0].payload_offset,
              100 + archive.find(payload));
  }
}

TEST_F(CommonStateTest, RefusesOtherValues) {
  EXPECT_THAT(Read(TorchArchiveBytes(Value::Int(1), {})),
              StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(
      Read(TorchArchiveBytes(arena_.List({arena_.Dict(), arena_.Dict()}), {})),
      StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(Read("not an archive"), StatusIs(StatusCode::kDataLoss));
  std::string damaged = TorchArchiveBytes(
      arena_.Dict({arena_.Str("iteration"), arena_.Str("seven")}), {});
  damaged[damaged.find("seven")] = 'S';
  EXPECT_THAT(Read(damaged),
              StatusIs(StatusCode::kDataLoss, HasSubstr("CRC-32")));
}

TEST_F(CommonStateTest, TheItemMustBeInItsFile) {
  dir_.WriteFile("file", "x");
  parts_.files = std::make_unique<SourceFiles>(
      Disk(), dir_.path(), std::vector<std::string>{"file"}, DirectMode::kAuto,
      /*follow_symlinks=*/false);
  EXPECT_THAT(ReadCommonState(Disk(), {.file = 0, .offset = 1, .length = 9}, {},
                              parts_),
              StatusIs(StatusCode::kDataLoss));
}

TEST_F(CommonStateTest, AnUnknownClassIsKeptFromUse) {
  const Value opaque =
      arena_.New(arena_.Global("megatron.core.enums", "ModelType"),
                 arena_.Tuple({Value::Int(1)}));
  ASSERT_OK_AND_ASSIGN(
      const std::vector<CheckpointEntry> entries,
      Read(TorchArchiveBytes(arena_.Dict({arena_.Str("a"), opaque,
                                          arena_.Str("b"), Value::Int(1)}),
                             {})));
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_FALSE(entries[0].object()->unreadable.ok());
  EXPECT_EQ(ToString(*entries[0].object(), 100),
            "<megatron.core.enums.ModelType>");
  EXPECT_OK(entries[1].object()->unreadable);
}

}  // namespace
}  // namespace dcp
