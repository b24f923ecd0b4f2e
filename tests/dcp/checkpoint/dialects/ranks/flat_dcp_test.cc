// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/flat_dcp.h"

#include <map>
#include <memory>
#include <string>

#include "dcp/checkpoint/open/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/dcp/checkpoint/open/dialects/ranks/rank_checkpoint.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TensorItem;
using ::dcp::testing::WarningText;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kLayout[] = R"([{"flat": "l._flat_param", "params": [
  {"name": "l.a", "shape": [2, 2]}, {"padding": 1},
  {"name": "l.none", "shape": [0]}, {"name": "l.b", "shape": [2]}]}])";

// Sets the last entry's path.
void SetPath(DcpBuilder& builder, const StatePath& path) {
  builder.metadata().entries.back().path = path;
}

// A flat parameter in two chunks, and optimizer state for it.
std::string WriteFlat(const TempDir& dir) {
  DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  builder.AddChunk("model.l._flat_param", DType::kUInt8, {7}, {{0}, {4}},
                   TensorItem(DType::kUInt8, {4}, "abcd"));
  builder.AddTensor("optimizer.state.l._flat_param.exp_avg", DType::kUInt8, {7},
                    "0123456");
  SetPath(builder, {"optimizer", "state", "l._flat_param", "exp_avg"});
  builder.AddTensor("model.seen", DType::kUInt8, {}, "s");
  SetPath(builder, {"model", "seen"});
  builder.StartFile("__1_0.distcp");
  builder.AddChunk("model.l._flat_param", DType::kUInt8, {7}, {{4}, {3}},
                   TensorItem(DType::kUInt8, {3}, "-ef"));
  builder.metadata().entries[0].path = {"model", "l._flat_param"};
  builder.metadata().has_planner_data = true;
  return builder.Write(dir, "dcp");
}

TEST(FlatDcp, ChunksAreCutIntoParameters) {
  const TempDir dir;
  const std::string path = WriteFlat(dir);
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      Checkpoint::Open(
          Disk(), path,
          {.dialect = {.layout = dir.WriteFile("l.json", kLayout)}}));
  ASSERT_OK(checkpoint->LocateAll());
  ASSERT_OK_AND_ASSIGN(const auto found, LoadAll(*checkpoint));
  EXPECT_EQ(found, (std::map<std::string, std::string>{
                       {"model.l.a", "abcd"},
                       {"model.l.b", "ef"},
                       {"model.l.none", ""},
                       {"model.seen", "s"},
                       {"optimizer.state.l.a.exp_avg", "0123"},
                       {"optimizer.state.l.b.exp_avg", "56"},
                       {"optimizer.state.l.none.exp_avg", ""}}));
  EXPECT_THAT(WarningText(*checkpoint), IsEmpty());
}

TEST(FlatDcp, ALayoutOfAnotherCheckpointIsRefused) {
  const TempDir dir;
  const std::string path = WriteFlat(dir);
  const auto open = [&](const char* layout) {
    return Checkpoint::Open(
        Disk(), path, {.dialect = {.layout = dir.WriteFile("l.json", layout)}});
  };
  EXPECT_THAT(open("[]"), StatusIs(StatusCode::kInvalidArgument,
                                   HasSubstr("model.l._flat_param")));
  EXPECT_THAT(
      open(R"([{"flat": "l._flat_param", "params": [{"padding": 8}]}])"),
      StatusIs(StatusCode::kInvalidArgument,
               AllOf(HasSubstr("8 elements"), HasSubstr("has 7"))));
}

// Each rank had a different piece under this name, and DCP kept one.
TEST(FlatDcp, StateOfOneRankIsReported) {
  const TempDir dir;
  const auto warning_of = [&](const Dims& shape) {
    DcpBuilder builder;
    builder.StartFile("__0_0.distcp");
    builder.AddChunk("model.w", DType::kUInt8, {2}, {{0}, {1}},
                     TensorItem(DType::kUInt8, {1}, "a"));
    builder.AddChunk("model.w", DType::kUInt8, {2}, {{1}, {1}},
                     TensorItem(DType::kUInt8, {1}, "b"));
    builder.AddTensor("optimizer.state.0.exp_avg", DType::kUInt8, shape,
                      std::string(static_cast<size_t>(Volume(shape)), 'x'));
    SetPath(builder, {"optimizer", "state", "0", "exp_avg"});
    builder.metadata().entries[0].path = {"model", "w"};
    builder.metadata().has_planner_data = true;
    const auto checkpoint = OpenCheckpoint(builder.Write(dir, "dcp"));
    EXPECT_OK(checkpoint);
    return checkpoint.ok() ? WarningText(**checkpoint) : "";
  };
  EXPECT_THAT(warning_of({3}), HasSubstr("all ranks but one is lost"));
  EXPECT_THAT(warning_of({3, 1}), IsEmpty());
}

}  // namespace
}  // namespace dcp
