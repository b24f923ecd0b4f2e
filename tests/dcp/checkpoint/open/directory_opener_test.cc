// SPDX-License-Identifier: Apache-2.0
// Which dialect a directory has, and the messages about it. dialects_test.cc
// compares each dialect's contents.
#include "dcp/checkpoint/open/directory_opener.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::BytesOf;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::ObjectItem;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

std::string OneTensor() {
  return SafetensorsBytes({{"w", DType::kFloat32, {1}, BytesOf<float>({1})}});
}

// A state dict with one tensor and a number.
std::string StateDict(int64_t step) {
  ValueArena arena;
  return TorchArchiveBytes(
      arena.Dict({arena.Str("step"), Value::Int(step), arena.Str("w"),
                  MakeTensor(arena, DType::kFloat32, {1}, false, "0")}),
      {BytesOf<float>({1})});
}

// Moves a copied golden checkpoint to `name`.
void Put(const TempDir& dir, absl::string_view golden, absl::string_view name) {
  std::filesystem::create_directories(
      std::filesystem::path(dir.Join(name)).parent_path());
  std::filesystem::rename(CopyGolden(dir, golden), dir.Join(name));
}

TEST(DirectoryOpener, TorchTitansNamesStandAtTheTop) {
  const TempDir dir;
  DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  for (const absl::string_view name :
       {"tok_embeddings.weight", "layers.0.attention.wq.weight",
        "optimizer.state.tok_embeddings.weight.exp_avg"}) {
    builder.AddTensor(name, DType::kFloat32, {2}, BytesOf<float>({1, 2}));
  }
  builder.AddObject("train_state", ObjectItem(Value::Int(100)));
  builder.AddObject("optimizer.param_groups.tok_embeddings.weight.lr",
                    ObjectItem(Value::Float(0.125)));
  const std::string path = builder.Write(dir, "step-100");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  EXPECT_EQ(checkpoint->dialect(), Dialect::kDcp);
  EXPECT_THAT(checkpoint->properties(), Not(Contains(Key("dialect"))));
  EXPECT_TRUE(checkpoint->Find("tok_embeddings.weight").has_value());
  ASSERT_OK(checkpoint->LocateAll());
  EXPECT_TRUE(
      checkpoint->Find("optimizer.param_groups.tok_embeddings.weight.lr")
          .has_value());
}

TEST(DirectoryOpener, FollowsAndReportsPointers) {
  const TempDir dir;
  Put(dir, "torch-2.11/sharded", "runs/iter_0000007");
  Put(dir, "torch-2.11/train", "runs/iter_0000008");
  EXPECT_THAT(OpenCheckpoint(dir.Join("runs")),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("it has iter_0000007, iter_0000008; give")));
  dir.WriteFile("runs/latest_checkpointed_iteration.txt", "7");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("runs")));
  EXPECT_THAT(checkpoint->properties(),
              Contains(Pair("followed",
                            "latest_checkpointed_iteration.txt to "
                            "iter_0000007")));
}

TEST(DirectoryOpener, FollowsDeepSpeedsPointer) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenCheckpoint(CopyGolden(dir, "dialects/deepspeed/zero2_ws3")));
  EXPECT_THAT(checkpoint->properties(),
              Contains(Pair("followed", HasSubstr("latest to global_step"))));
}

TEST(DirectoryOpener, PointersAreFollowedOnce) {
  const TempDir dir;
  dir.WriteFile("runs/latest", "a");
  dir.WriteFile("runs/a/latest", "b");
  dir.WriteFile("runs/a/b/model.safetensors", OneTensor());
  EXPECT_THAT(OpenCheckpoint(dir.Join("runs")),
              StatusIs(StatusCode::kNotFound, HasSubstr("runs/a: not a")));
}

TEST(DirectoryOpener, ComposersLinkChoosesAmongItsFiles) {
  const TempDir dir;
  dir.WriteFile("runs/ep0-ba1-rank0.pt", StateDict(1));
  dir.WriteFile("runs/ep0-ba2-rank0.pt", StateDict(2));
  EXPECT_THAT(OpenCheckpoint(dir.Join("runs")),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("ep0-ba1-rank{rank}.pt and "
                                 "ep0-ba2-rank{rank}.pt")));
  ASSERT_EQ(
      symlink("ep0-ba2-rank0.pt", dir.Join("runs/latest-rank0.pt").c_str()), 0);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("runs")));
  EXPECT_EQ(checkpoint->dialect(), Dialect::kTorch);
  EXPECT_THAT(
      checkpoint->properties(),
      Contains(Pair("followed", "latest-rank0.pt to ep0-ba2-rank0.pt")));
  Put(dir, "torch-2.11/sharded", "sharded/ep0-ba2");
  ASSERT_EQ(symlink("ep0-ba2", dir.Join("sharded/latest-rank0.pt").c_str()), 0);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> sharded,
                       OpenCheckpoint(dir.Join("sharded")));
  EXPECT_EQ(sharded->dialect(), Dialect::kDcp);
}

TEST(DirectoryOpener, SaysThatThereIsAModelNextToDeepSpeedsFiles) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, "dialects/deepspeed/zero2_ws3");
  std::filesystem::copy(dir.WriteFile("model.safetensors", OneTensor()),
                        path + "/model.safetensors");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  EXPECT_EQ(checkpoint->dialect(), Dialect::kDeepSpeed);
  EXPECT_THAT(checkpoint->properties(),
              Contains(Pair("also here", HasSubstr("model.safetensors"))));
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> model,
      Checkpoint::Open(Disk(), path,
                       {.dialect = {.from = Dialect::kSafetensors}}));
  EXPECT_EQ(model->entries().size(), 1);
  EXPECT_THAT(
      Checkpoint::Open(Disk(), path,
                       {.dialect = {.from = Dialect::kTorchSnapshot}}),
      StatusIs(StatusCode::kNotFound,
               HasSubstr("no checkpoint that can be read as torchsnapshot")));
}

TEST(DirectoryOpener, AModelIsReadWhenDeepSpeedsFolderIsGone) {
  const TempDir dir;
  dir.WriteFile("checkpoint-5/latest", "global_step5");
  EXPECT_THAT(OpenCheckpoint(dir.Join("checkpoint-5")),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("names global_step5, which is not there")));
  dir.WriteFile("checkpoint-5/model.safetensors", OneTensor());
  EXPECT_OK(OpenCheckpoint(dir.Join("checkpoint-5")));
}

TEST(DirectoryOpener, RefusesAnUnfinishedTorchCheckpointingSave) {
  const TempDir dir;
  constexpr absl::string_view kGolden =
      "dialects/ranks/torch_checkpointing_ws2";
  Put(dir, kGolden, "tmp_step_5");
  EXPECT_THAT(OpenCheckpoint(dir.Join("tmp_step_5")),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("until its save has finished")));
  EXPECT_OK(Checkpoint::Open(Disk(), dir.Join("tmp_step_5"),
                             {.dialect = {.from = Dialect::kRanks}}));
  std::filesystem::rename(dir.Join("tmp_step_5"), dir.Join("step_5"));
  EXPECT_OK(OpenCheckpoint(dir.Join("step_5")));
}

TEST(DirectoryOpener, RefusesACustomLayoutOfTorchCheckpointing) {
  const TempDir dir;
  dir.WriteFile("d/metadata.pkl", "\x80\x04}\x8c\x17nested_path_to_metadata");
  // This rank's parts, under the whole tensors' names.
  dir.WriteFile("d/model_rank0.safetensors", OneTensor());
  EXPECT_THAT(
      OpenCheckpoint(dir.Join("d")),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("custom layouts")));
  // Another file with this name means nothing.
  dir.WriteFile("d/metadata.pkl", "\x80\x04N.");
  EXPECT_OK(OpenCheckpoint(dir.Join("d")));
}

}  // namespace
}  // namespace dcp
