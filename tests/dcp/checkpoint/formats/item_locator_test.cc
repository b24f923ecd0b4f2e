// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/item_locator.h"

#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/io/object/object_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::BytesOf;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::GetEntry;
using ::dcp::testing::LoadAll;
using ::dcp::testing::ObjectItem;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::SimObjectServer;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TensorItem;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::HasSubstr;

// The result when everything in the checkpoint at `path` is located.
absl::Status LocateAllAt(const std::string& path) {
  const auto checkpoint = OpenCheckpoint(path);
  EXPECT_OK(checkpoint);
  return (*checkpoint)->LocateAll();
}

TEST(ItemLocator, FindsTensorsAndObjectsOfAnySize) {
  // Items with some kilobytes are read whole, larger ones at head and tail; a
  // pickle longer than the head is fetched.
  const std::string large(100000, 'x');
  ValueArena arena;
  DcpBuilder builder;
  builder.StartFile("a");
  builder.AddTensor("small", DType::kUInt8, {3}, "abc");
  builder.AddTensor("large", DType::kUInt8, {100000}, large);
  builder.StartFile("b");
  builder.AddObject("text", ObjectItem(arena.Str(large)));
  builder.AddTensor("empty", DType::kFloat32, {0, 3}, "");
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(builder.Write(dir, "c")));
  ASSERT_OK(checkpoint->LocateAll());
  EXPECT_EQ(GetEntry(*checkpoint, "text").object()->value.text(), large);
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadAll(*checkpoint));
  EXPECT_EQ(loaded["small"], "abc");
  EXPECT_EQ(loaded["large"], large);
  EXPECT_EQ(loaded["empty"], "");
}

TEST(ItemLocator, LocatesMoreItemsThanABatchHas) {
  DcpBuilder builder;
  builder.StartFile("a");
  for (int i = 0; i < 1100; ++i) {
    builder.AddObject(absl::StrCat("o", i), ObjectItem(Value::Int(i)));
  }
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(builder.Write(dir, "c")));
  ASSERT_OK(checkpoint->LocateAll());
  for (int i = 0; i < 1100; ++i) {
    EXPECT_EQ(checkpoint->entries()[static_cast<size_t>(i)]
                  .object()
                  ->value.int_value(),
              i);
  }
}

TEST(ItemLocator, FindsTensorsInsideObjects) {
  ValueArena arena;
  const Value tensor = MakeTensor(arena, DType::kUInt8, {2}, false, "0");
  DcpBuilder builder;
  builder.StartFile("a");
  builder.AddObject(
      "pair", TorchArchiveBytes(arena.Tuple({tensor, Value::Int(5)}), {"hi"}));
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(builder.Write(dir, "c")));
  ASSERT_OK(checkpoint->LocateAll());
  const ObjectEntry& pair = *GetEntry(*checkpoint, "pair").object();
  ASSERT_EQ(pair.tensors.size(), 1u);
  const TensorEntry& inner = pair.tensors.at(pair.value.items()[0].identity());
  EXPECT_EQ(inner.shape, Dims({2}));
  EXPECT_EQ(builder.files()[0].substr(inner.locations[0].payload_offset, 2),
            "hi");
}

TEST(ItemLocator, KeepsObjectsOfUnknownClasses) {
  ValueArena arena;
  const Value config =
      arena.New(arena.Global("mylib", "Config"), arena.Tuple({}));
  DcpBuilder builder;
  builder.StartFile("a");
  builder.AddObject("config", ObjectItem(config));
  builder.AddObject("n", ObjectItem(Value::Int(5)));
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(builder.Write(dir, "c")));
  ASSERT_OK(checkpoint->LocateAll());
  const ObjectEntry& object = *GetEntry(*checkpoint, "config").object();
  EXPECT_TRUE(object.located);
  EXPECT_TRUE(object.value.is_none());
  EXPECT_THAT(object.unreadable, StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_OK(GetEntry(*checkpoint, "n").object()->unreadable);
}

// They are copied as they are stored.
TEST(ItemLocator, TheBytesOfUnreadableObjectsAreChecked) {
  const TempDir dir;
  ValueArena arena;
  const Value config =
      arena.New(arena.Global("mylib", "Config"), arena.Tuple({}));
  arena.SetState(config,
                 arena.Dict({arena.Str("table"),
                             MakeTensor(arena, DType::kUInt8, {4},
                                        /*requires_grad=*/false, "0")}));
  for (const std::string& table : {"abcd", "abce"}) {
    std::string item = TorchArchiveBytes(config, {"abcd"});
    item.replace(item.find("abcd"), 4, table);
    DcpBuilder builder;
    builder.StartFile("a");
    builder.AddObject("config", item);
    const absl::StatusOr<ConvertPlan> plan = ConvertCheckpoint(
        Disk(), builder.Write(dir, table), dir.Join("copy-" + table), {});
    if (table == "abcd") {
      ASSERT_OK(plan);
      EXPECT_EQ(plan->check.num_items_unchecked, 0u);
    } else {
      EXPECT_THAT(plan,
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr("config: ")));
    }
  }
}

TEST(ItemLocator, RefusesItemsUnlikeTheIndex) {
  const std::string floats = BytesOf<float>({1, 2});
  ValueArena arena;
  struct Case {
    const char* name;
    std::string item;
    const char* message;
  };
  const std::string sound = TensorItem(DType::kFloat32, {2}, floats);
  const Case cases[] = {
      {"other dtype", TensorItem(DType::kInt32, {2}, floats),
       "the item holds int32 [2], but the index says float32 [2]"},
      {"other shape", TensorItem(DType::kFloat32, {2, 1}, floats),
       "the item holds float32 [2, 1]"},
      {"an object", ObjectItem(Value::Int(5)), "the item holds 5"},
      {"cut short", sound.substr(0, sound.size() - 1), ""},
      {"no archive", std::string(200, 'x'), "not a torch.save archive"},
      {"no archive but its signature", "PK\x03\x04" + std::string(200, 'x'),
       ""},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.name);
    DcpBuilder builder;
    builder.StartFile("__0_0.distcp");
    builder.AddChunk("w", DType::kFloat32, {2}, WholeBox({2}), bad.item);
    const TempDir dir;
    const absl::Status status = LocateAllAt(builder.Write(dir, "c"));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                 HasSubstr("w: __0_0.distcp at 0")));
    EXPECT_THAT(status.message(), HasSubstr(bad.message));
  }
}

TEST(ItemLocator, RefusesMissingDataFiles) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, "torch-2.11/sharded");
  const std::string file = path + "/__1_0.distcp";
  const std::string bytes = testing::ReadFile(file);

  dir.WriteFile("torch-2.11/sharded/__1_0.distcp",
                bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(LocateAllAt(path), StatusIs(absl::StatusCode::kDataLoss,
                                          HasSubstr("reach past the end")));
  ASSERT_EQ(unlink(file.c_str()), 0);
  EXPECT_THAT(LocateAllAt(path),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("__1_0.distcp")));
  dir.WriteFile("elsewhere", bytes);
  ASSERT_EQ(symlink("../../elsewhere", file.c_str()), 0);
  EXPECT_THAT(LocateAllAt(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("symbolic link")));
  ASSERT_EQ(unlink(file.c_str()), 0);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(LocateAllAt(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("not a regular file")));
  ASSERT_EQ(unlink(file.c_str()), 0);
  ASSERT_EQ(mkdir(file.c_str(), 0700), 0);
  EXPECT_THAT(LocateAllAt(path), StatusIs(absl::StatusCode::kInvalidArgument));
}

// A data file that is one safetensors file; the items are placed by name.
DcpBuilder SafetensorsItems(const std::string& file) {
  DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  builder.AddChunk("w", DType::kFloat32, {2}, WholeBox({2}), "12345678");
  builder.files()[0] = file;
  return builder;
}

TEST(ItemLocator, SafetensorsItemsMustMatchTheIndex) {
  const std::string floats = BytesOf<float>({1, 2});
  const TempDir dir;
  EXPECT_OK(LocateAllAt(
      SafetensorsItems(SafetensorsBytes({{"w", DType::kFloat32, {2}, floats}}))
          .Write(dir, "sound")));
  EXPECT_THAT(
      LocateAllAt(SafetensorsItems(
                      SafetensorsBytes({{"w", DType::kInt32, {2}, floats}}))
                      .Write(dir, "dtype")),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("the safetensors file holds int32 [2]")));
  EXPECT_THAT(
      LocateAllAt(SafetensorsItems(
                      SafetensorsBytes({{"v", DType::kFloat32, {2}, floats}}))
                      .Write(dir, "name")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("nor named")));
}

// A checkpoint with enough items for two threads to share them.
void WriteManyItems(SimStorage& fs) {
  constexpr int kNumItems = 8200;
  const std::string item =
      TensorItem(DType::kFloat32, {1}, BytesOf<float>({1}));
  DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  for (int i = 0; i < kNumItems; ++i) {
    builder.AddChunk(absl::StrCat("w", i), DType::kFloat32, {1}, WholeBox({1}),
                     item);
  }
  ASSERT_OK(fs.MakeDirectory("/src"));
  ASSERT_OK(WriteFile(fs, "/src/__0_0.distcp", builder.files()[0]));
  ASSERT_OK(
      WriteFile(fs, "/src/.metadata", WriteDcpMetadata(builder.metadata())));
}

TEST(ItemLocator, KeepsWithinTheMemoryBudget) {
  SimStorage fs;
  WriteManyItems(fs);
  ConvertOptions convert;
  convert.memory_bytes = kMinMemoryBytes;
  EXPECT_OK(PlanConvert(fs, "/src", "/dst.safetensors", std::move(convert)));
  VerifyOptions verify;
  verify.memory_bytes = kMinMemoryBytes;
  EXPECT_OK(VerifyCheckpoint(fs, "/src", std::move(verify)));
  DiffOptions diff;
  diff.memory_bytes = kMinMemoryBytes;
  EXPECT_OK(DiffCheckpoints(fs, "/src", "/src", std::move(diff)));
  EXPECT_EQ(fs.most_queue_bytes(), kMinMemoryBytes);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       Checkpoint::Open(fs, "/src", {}));
  EXPECT_OK(checkpoint->LocateAll());
  EXPECT_EQ(fs.most_queue_bytes(), 2 * kMinMemoryBytes);
}

// The requests that locate 20 items with 100 KB in one object.
TEST(ItemLocator, ReadsSmallItemsOfAStoreWithOneRequest) {
  constexpr int64_t kSize = 100'000;
  DcpBuilder builder;
  builder.StartFile("a");
  for (int i = 0; i < 20; ++i) {
    builder.AddTensor(absl::StrCat("t", i), DType::kUInt8, {kSize},
                      std::string(kSize, 'x'));
  }
  const TempDir dir;
  const std::string path = builder.Write(dir, "c");
  SimObjectServer server;
  for (const char* name : {".metadata", "a"}) {
    ASSERT_OK_AND_ASSIGN(const std::string bytes,
                         ReadFile(Disk(), JoinPath(path, name), UINT64_MAX,
                                  /*follow_symlinks=*/false));
    server.PutBytes(absl::StrCat("c/", name), bytes);
  }
  ObjectFileSystem fs(server.Opener());
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       Checkpoint::Open(fs, "s3://bucket/c", {}));
  const uint64_t num_before = server.num_calls();
  EXPECT_OK(checkpoint->LocateAll());
  EXPECT_EQ(server.num_calls() - num_before, 2u);  // with the one to open it
  EXPECT_TRUE(GetEntry(*checkpoint, "t19").tensor()->locations[0].located);
}

}  // namespace
}  // namespace dcp
