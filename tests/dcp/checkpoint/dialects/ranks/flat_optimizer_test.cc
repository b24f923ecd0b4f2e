// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/flat_optimizer.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/torch/torch_tensor.h"
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
using ::dcp::testing::GetEntry;
using ::dcp::testing::LoadAll;
using ::dcp::testing::MakeDTensor;
using ::dcp::testing::MakeShard;
using ::dcp::testing::RankCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::WarningText;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Bytes = std::map<std::string, std::string>;

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenFlatOptimizer(
    const std::string& path, std::string flat_units) {
  return Checkpoint::Open(Disk(), path,
                          {.dialect = {.flat_units = std::move(flat_units)}});
}

TEST(FlatOptimizer, UnitsNameTheParameters) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, "dialects/verl/verl_fsdp1_ws2");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> plain,
                       OpenFlatOptimizer(path, ""));
  EXPECT_THAT(WarningText(*plain), HasSubstr("the option flat_units"));
  ASSERT_OK_AND_ASSIGN(const Bytes flat, LoadAll(*plain));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenFlatOptimizer(path, "model.layers.*"));
  EXPECT_THAT(WarningText(*checkpoint), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const Bytes named, LoadAll(*checkpoint));
  // A unit's parameters follow one another in the model's order.
  std::map<int, size_t> at;
  for (const CheckpointEntry& entry : checkpoint->entries()) {
    absl::string_view name = entry.fqn;
    if (!absl::ConsumePrefix(&name, "model.") || entry.tensor() == nullptr ||
        name == "lm_head.weight") {  // tied
      continue;
    }
    int unit = 0;
    if (absl::StrContains(name, "layers.0.")) unit = 1;
    if (absl::StrContains(name, "layers.1.")) unit = 2;
    const std::string key = absl::StrCat("optimizer.state.", name, ".exp_avg");
    SCOPED_TRACE(key);
    EXPECT_EQ(GetEntry(*checkpoint, key).tensor()->shape,
              entry.tensor()->shape);
    const std::string& bytes = named.at(key);
    EXPECT_EQ(bytes, flat.at(absl::StrCat("optimizer.state.", unit, ".exp_avg"))
                         .substr(at[unit], bytes.size()));
    at[unit] += bytes.size();
    EXPECT_TRUE(
        named.contains(absl::StrCat("optimizer.state.", name, ".step")));
  }
  EXPECT_GT(at[0], 0u);
  EXPECT_GT(at[2], 0u);
}

TEST(FlatOptimizer, UnitsThatDoNotFitAreRefused) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, "dialects/verl/verl_fsdp1_ws2");
  EXPECT_THAT(OpenFlatOptimizer(path, "model.blocks.*"),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("1 units"), HasSubstr("3 parameters"))));
  EXPECT_THAT(OpenFlatOptimizer(path, "model.layers.*.mlp"),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("but the optimizer has")));
}

// Two ranks: DTensors with shape (3, 2), and an optimizer that has pieces with
// the test's lengths.
class FlatOptimizerFilesTest : public ::testing::Test {
 protected:
  void AddRank(int64_t rank, std::vector<std::pair<int64_t, int64_t>> states) {
    ValueArena& arena = files_.arena();
    const Value w = MakeDTensor(arena, {.shape = {3, 2},
                                        .local = {rank == 0 ? 2 : 1, 2},
                                        .key = "0",
                                        .mesh = {2},
                                        .coordinate = {rank},
                                        .placements = {MakeShard(arena, 0)}});
    const Value state = arena.Dict();
    std::vector<std::string> storages = {rank == 0 ? "abcd" : "ef"};
    for (const auto& [number, length] : states) {
      const std::string key = absl::StrCat(storages.size());
      storages.push_back(std::string(static_cast<size_t>(length),
                                     static_cast<char>('0' + rank)));
      arena.Update(
          state,
          {Value::Int(number),
           arena.Dict({arena.Str("exp_avg"),
                       MakeTensor(arena, DType::kUInt8, {length}, false, key),
                       arena.Str("step"), Value::Int(7)})});
    }
    const Value group =
        arena.Dict({arena.Str("params"), arena.List({Value::Int(0)})});
    files_.Add(absl::StrCat("model_world_size_2_rank_", rank, ".pt"),
               arena.Dict({arena.Str("w"), w}), storages);
    files_.Add(absl::StrCat("optim_world_size_2_rank_", rank, ".pt"),
               arena.Dict({arena.Str("state"), state, arena.Str("param_groups"),
                           arena.List({group})}),
               storages);
  }

  TempDir dir_;
  RankCheckpoint files_;
};

TEST_F(FlatOptimizerFilesTest, OriginalParametersAreCutAnywhere) {
  AddRank(0, {{0, 1}});
  AddRank(1, {{0, 5}});
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenFlatOptimizer(files_.Write(dir_), ""));
  EXPECT_THAT(WarningText(*checkpoint), IsEmpty());
  EXPECT_EQ(GetEntry(*checkpoint, "optimizer.state.w.exp_avg").tensor()->shape,
            Dims({3, 2}));
  ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
  EXPECT_EQ(found.at("optimizer.state.w.exp_avg"), "011111");
  EXPECT_EQ(GetEntry(*checkpoint, "optimizer.state.w.step")
                .object()
                ->value.int_value(),
            7);
}

TEST_F(FlatOptimizerFilesTest, StateWithoutNamesIsJoined) {
  AddRank(0, {{0, 4}});
  AddRank(1, {{0, 4}});
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenFlatOptimizer(files_.Write(dir_), ""));
  ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
  EXPECT_EQ(found.at("optimizer.state.0.exp_avg"), "00001111");
  EXPECT_THAT(WarningText(*checkpoint), HasSubstr("flat_units"));
}

TEST_F(FlatOptimizerFilesTest, TensorsOfOneStateHaveOneLength) {
  ValueArena& arena = files_.arena();
  AddRank(0, {{0, 4}});
  const auto vector = [&](int64_t length) {
    return MakeTensor(arena, DType::kUInt8, {length}, false, "0");
  };
  const Value state = arena.Dict(
      {Value::Int(0), arena.Dict({arena.Str("exp_avg"), vector(4),
                                  arena.Str("exp_avg_sq"), vector(3)})});
  AddRank(1, {});
  files_.Add(
      "optim_world_size_2_rank_1.pt",
      arena.Dict({arena.Str("state"), state, arena.Str("param_groups"),
                  arena.List({arena.Dict(
                      {arena.Str("params"), arena.List({Value::Int(0)})})})}),
      {"0123"});
  EXPECT_THAT(OpenFlatOptimizer(files_.Write(dir_), ""),
              StatusIs(StatusCode::kDataLoss,
                       AllOf(HasSubstr("rank_1.pt"), HasSubstr("4 elements"),
                             HasSubstr("3 elements"))));
}

}  // namespace
}  // namespace dcp
