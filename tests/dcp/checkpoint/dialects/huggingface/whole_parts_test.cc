// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/huggingface/whole_parts.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/dcp/checkpoint/open/dialects/ranks/rank_checkpoint.h"
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
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::dcp::testing::WarningText;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

constexpr absl::string_view kDdp = "dialects/accelerate/accelerate_ddp";

bool HasEntry(const Checkpoint& checkpoint, absl::string_view name) {
  return checkpoint.Find(name).has_value();
}

// A state dict with uint8 tensors by name, as torch.save writes it.
std::string StateDict(
    const std::vector<std::pair<std::string, std::string>>& tensors) {
  ValueArena arena;
  std::vector<Value> items;
  std::vector<std::string> storages;
  for (const auto& [name, bytes] : tensors) {
    items.push_back(arena.Str(name));
    items.push_back(MakeTensor(arena, DType::kUInt8,
                               {static_cast<int64_t>(bytes.size())}, false,
                               absl::StrCat(storages.size())));
    storages.push_back(bytes);
  }
  return TorchArchiveBytes(arena.Dict(items), storages);
}

// An optimizer.state_dict() with a moment for each parameter.
std::string OptimizerDict(const std::vector<std::string>& moments) {
  ValueArena arena;
  std::vector<Value> states;
  std::vector<Value> numbers;
  std::vector<std::string> storages;
  for (const std::string& bytes : moments) {
    const auto number = static_cast<int64_t>(numbers.size());
    numbers.push_back(Value::Int(number));
    states.push_back(Value::Int(number));
    states.push_back(arena.Dict(
        {arena.Str("m"),
         MakeTensor(arena, DType::kUInt8, {static_cast<int64_t>(bytes.size())},
                    false, absl::StrCat(number))}));
    storages.push_back(bytes);
  }
  const Value group = arena.Dict({arena.Str("params"), arena.List(numbers)});
  return TorchArchiveBytes(
      arena.Dict({arena.Str("state"), arena.Dict(states),
                  arena.Str("param_groups"), arena.List({group})}),
      storages);
}

// A safetensors file with one tensor.
std::string OneTensorFile(const std::string& name, const std::string& bytes) {
  return SafetensorsBytes(
      {{name, DType::kUInt8, {static_cast<int64_t>(bytes.size())}, bytes}});
}

TEST(WholeParts, AccelerateIsReadWhole) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(CopyGolden(dir, kDdp)));
  EXPECT_EQ(checkpoint->dialect(), Dialect::kAccelerate);
  for (const char* name :
       {"model.layers.0.w", "optimizer.state.0.exp_avg",
        "optimizer.param_groups.0.lr", "extra.scheduler.last_epoch",
        "extra.random_states.step"}) {
    EXPECT_TRUE(HasEntry(*checkpoint, name)) << name;
  }
  // Two parameters have the same shape, and safetensors have no order.
  EXPECT_THAT(WarningText(*checkpoint),
              HasSubstr("some of the same shape cannot be told apart"));
}

TEST(WholeParts, AFileWithTheOrderGivesNames) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, kDdp);
  OpenOptions options;
  options.dialect.optimizer_in_model_order = true;
  EXPECT_THAT(Checkpoint::Open(Disk(), path, options),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("do not record the order")));
  options.dialect.like =
      dir.WriteFile("like.pt", StateDict({{"embed.weight", "1"},
                                          {"layers.0.w", "2"},
                                          {"layers.1.w", "3"},
                                          {"norm.weight", "4"}}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> named,
                       Checkpoint::Open(Disk(), path, options));
  EXPECT_THAT(WarningText(*named), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> plain,
                       OpenCheckpoint(path));
  ASSERT_OK_AND_ASSIGN(const auto with_names, LoadAll(*named));
  ASSERT_OK_AND_ASSIGN(const auto with_numbers, LoadAll(*plain));
  EXPECT_EQ(with_names.at("optimizer.state.layers.1.w.exp_avg"),
            with_numbers.at("optimizer.state.2.exp_avg"));
  options.dialect.like =
      dir.WriteFile("other.pt", StateDict({{"embed.weight", "1"}}));
  EXPECT_THAT(Checkpoint::Open(Disk(), path, options),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("which is not in this file")));
}

TEST(WholeParts, DistinctShapesGiveNames) {
  const TempDir dir;
  dir.WriteFile("c/pytorch_model.bin", StateDict({{"a", "12"}, {"b", "345"}}));
  dir.WriteFile("c/optimizer.bin", OptimizerDict({"ABC", "DE"}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("c")));
  ASSERT_OK_AND_ASSIGN(const auto found, LoadAll(*checkpoint));
  EXPECT_EQ(found, (std::map<std::string, std::string>{
                       {"model.a", "12"},
                       {"model.b", "345"},
                       {"optimizer.state.a.m", "DE"},
                       {"optimizer.state.b.m", "ABC"}}));
}

TEST(WholeParts, NumbersTheSecondModelAndOptimizer) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, kDdp);
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"model.safetensors", "model_1.safetensors"},
           {"optimizer.bin", "optimizer_1.bin"},
           {"scheduler.bin", "scheduler_1.bin"}}) {
    fs::copy(JoinPath(path, from), JoinPath(path, to));
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  for (const char* name :
       {"model.layers.0.w", "model_1.layers.0.w", "optimizer.state.0.exp_avg",
        "optimizer_1.state.0.exp_avg", "extra.scheduler.last_epoch",
        "extra.scheduler_1.last_epoch"}) {
    EXPECT_TRUE(HasEntry(*checkpoint, name)) << name;
  }
  EXPECT_THAT(WarningText(*checkpoint),
              HasSubstr("which model they belong to"));
}

// diffusers' training scripts save each model in a separate folder.
TEST(WholeParts, DiffusersHasAFolderForEachModel) {
  const TempDir dir;
  for (const std::string folder : {"unet", "unet_ema"}) {
    dir.WriteFile(absl::StrCat("checkpoint-5/", folder,
                               "/diffusion_pytorch_model.safetensors"),
                  OneTensorFile("conv.weight", "abcd"));
    dir.WriteFile(absl::StrCat("checkpoint-5/", folder, "/config.json"), "{}");
  }
  dir.WriteFile("checkpoint-5/optimizer.bin", OptimizerDict({"wxyz"}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("checkpoint-5")));
  ASSERT_OK_AND_ASSIGN(const auto found, LoadAll(*checkpoint));
  EXPECT_EQ(found, (std::map<std::string, std::string>{
                       {"model.unet.conv.weight", "abcd"},
                       {"model.unet_ema.conv.weight", "abcd"},
                       {"optimizer.state.unet.conv.weight.m", "wxyz"}}));
}

TEST(WholeParts, LeavesAModelAloneToOtherOpeners) {
  const TempDir dir;
  dir.WriteFile("c/model.safetensors", OneTensorFile("w", "1"));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("c")));
  EXPECT_EQ(checkpoint->dialect(), Dialect::kSafetensors);
  // The user may choose to read one this way.
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> bare,
      Checkpoint::Open(Disk(), CopyGolden(dir, kDdp),
                       {.dialect = {.from = Dialect::kSafetensors}}));
  EXPECT_TRUE(HasEntry(*bare, "layers.0.w"));
}

// FSDP1's LOCAL_STATE_DICT: vectors where the weights were.
TEST(WholeParts, FlatWeightsOfAccelerateAreALoss) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenCheckpoint(
          CopyGolden(dir, "dialects/accelerate/accelerate_fsdp1_local_ws3")));
  ASSERT_FALSE(checkpoint->losses().empty());
  EXPECT_TRUE(checkpoint->losses()[0].needs_consent);
  EXPECT_THAT(WarningText(*checkpoint), HasSubstr("flat parameters of FSDP1"));
}

}  // namespace
}  // namespace dcp
