// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/open/checkpoint.h"

#include <unistd.h>

#include <memory>
#include <stop_token>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/format/safetensors/safetensors_index.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::BytesOf;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::DcpBuilder;
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::HasSubstr;

std::string OneTensor() {
  return SafetensorsBytes({{"w", DType::kFloat32, {1}, BytesOf<float>({1})}});
}

TEST(Checkpoint, FormatNamesRoundTrip) {
  for (const Format format :
       {Format::kDcp, Format::kSafetensors, Format::kTorch}) {
    EXPECT_THAT(ParseFormat(FormatName(format)), IsOkAndHolds(format));
  }
  EXPECT_THAT(ParseFormat("bin"), IsOkAndHolds(Format::kTorch));
  EXPECT_THAT(ParseFormat("onnx"), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("'onnx'")));
}

TEST(Checkpoint, DetectsTheFormat) {
  const TempDir dir;
  const auto format_of = [](const std::string& path) {
    const auto checkpoint = OpenCheckpoint(path);
    EXPECT_OK(checkpoint) << path;
    return (*checkpoint)->format();
  };
  EXPECT_EQ(format_of(CopyGolden(dir, "torch-2.11/sharded")), Format::kDcp);
  EXPECT_EQ(format_of(CopyGolden(dir, "torch-2.11/archive.pt")),
            Format::kTorch);
  EXPECT_EQ(format_of(CopyGolden(dir, "torch-2.11/legacy.pt")), Format::kTorch);
  EXPECT_EQ(format_of(CopyGolden(dir, "torch-2.11/hugging_face")),
            Format::kSafetensors);
  // The name does not matter if the bytes identify the format.
  std::string bytes = OneTensor();
  EXPECT_EQ(format_of(dir.WriteFile("weights", bytes)), Format::kSafetensors);
  bytes.insert(8, "  ");
  bytes[0] = static_cast<char>(bytes[0] + 2);
  EXPECT_EQ(format_of(dir.WriteFile("spaced", bytes)), Format::kSafetensors);
}

TEST(Checkpoint, APathGivenByTheUserMayBeALink) {
  const TempDir dir;
  CopyGolden(dir, "torch-2.11/sharded");
  dir.WriteFile("blob", OneTensor());
  ASSERT_EQ(symlink("torch-2.11/sharded", dir.Join("latest").c_str()), 0);
  ASSERT_EQ(symlink("blob", dir.Join("model.safetensors").c_str()), 0);
  EXPECT_OK(OpenCheckpoint(dir.Join("latest")));
  EXPECT_OK(OpenCheckpoint(dir.Join("model.safetensors")));
}

TEST(Checkpoint, ExplainsWhyThereIsNone) {
  const TempDir dir;
  EXPECT_THAT(OpenCheckpoint(dir.Join("absent")),
              StatusIs(absl::StatusCode::kNotFound));
  dir.WriteFile("other/readme.txt", "");
  EXPECT_THAT(
      OpenCheckpoint(dir.Join("other")),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("neither .metadata")));
  dir.WriteFile("unfinished/__0_0.distcp", "");
  dir.WriteFile("unfinished/.metadata.tmp", "");
  EXPECT_THAT(OpenCheckpoint(dir.Join("unfinished")),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("the save did not finish")));
  EXPECT_THAT(OpenCheckpoint(dir.WriteFile("empty.pt", "")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("empty.pt")));
  EXPECT_THAT(
      OpenCheckpoint(dir.WriteFile("empty.safetensors", "")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("empty.safetensors")));
}

constexpr int kNumShards = 20;

std::string ShardName(int shard, absl::string_view suffix) {
  return absl::StrFormat("m-%05d-of-%05d%s", shard + 1, kNumShards, suffix);
}

// A directory "/m" with shards, each with a tensor, and with their index.
void WriteShards(SimStorage& fs, bool safetensors) {
  const std::string suffix = safetensors ? ".safetensors" : ".bin";
  std::vector<std::pair<std::string, std::string>> weight_map;
  ASSERT_OK(fs.MakeDirectory("/m"));
  for (int i = 0; i < kNumShards; ++i) {
    const std::string name = absl::StrCat("w", i);
    const std::string payload = BytesOf<float>({1});
    ValueArena arena;
    const std::string bytes =
        safetensors
            ? SafetensorsBytes({{name, DType::kFloat32, {1}, payload}})
            : TorchArchiveBytes(arena.Dict({arena.Str(name),
                                            MakeTensor(arena, DType::kFloat32,
                                                       {1}, false, "0")}),
                                {payload});
    const std::string file = ShardName(i, suffix);
    ASSERT_OK(WriteFile(fs, JoinPath("/m", file), bytes));
    weight_map.emplace_back(name, file);
  }
  ASSERT_OK(WriteFile(fs, absl::StrCat("/m/m", suffix, ".index.json"),
                      WriteSafetensorsIndex(4, weight_map)));
}

void WriteDcp(SimStorage& fs) {
  DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  for (int i = 0; i < kNumShards; ++i) {
    builder.AddTensor(absl::StrCat("w", i), DType::kFloat32, {1},
                      BytesOf<float>({1}));
  }
  ASSERT_OK(fs.MakeDirectory("/m"));
  ASSERT_OK(
      WriteFile(fs, "/m/.metadata", WriteDcpMetadata(builder.metadata())));
}

// Detecting the format takes four operations on the directory and one on the
// index's first file, whatever the checkpoint's size.
constexpr uint64_t kMaxOperationsAfterStop = 4;

// Wherever the stop comes.
void ExpectAStopEndsOpening(SimStorage& fs, uint64_t num_operations_min) {
  const uint64_t before = fs.num_operations();
  ASSERT_OK(Checkpoint::Open(fs, "/m", {}));
  const uint64_t num_operations = fs.num_operations() - before;
  EXPECT_GE(num_operations, num_operations_min);
  for (uint64_t i = 0; i < num_operations; ++i) {
    SCOPED_TRACE(i);
    std::stop_source stop;
    const uint64_t begin = fs.num_operations();
    fs.CallBeforeOperation(i, [&stop] { stop.request_stop(); });
    EXPECT_THAT(Checkpoint::Open(fs, "/m", {}, stop.get_token()),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
    EXPECT_LE(fs.num_operations() - begin, i + 1 + kMaxOperationsAfterStop);
    EXPECT_EQ(fs.num_open_files(), 0u);
  }
  EXPECT_OK(Checkpoint::Open(fs, "/m", {}));
}

TEST(Checkpoint, AStopEndsOpeningSafetensorsShards) {
  SimStorage fs;
  WriteShards(fs, /*safetensors=*/true);
  ExpectAStopEndsOpening(fs, 3 * kNumShards);
}

TEST(Checkpoint, AStopEndsOpeningBinShards) {
  SimStorage fs;
  WriteShards(fs, /*safetensors=*/false);
  ExpectAStopEndsOpening(fs, 3 * kNumShards);
}

TEST(Checkpoint, AStopEndsOpeningDcp) {
  SimStorage fs;
  WriteDcp(fs);
  ExpectAStopEndsOpening(fs, 3);
}

TEST(Checkpoint, FindsEntriesByName) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(CopyGolden(dir, "torch-2.11/sharded")));
  for (uint32_t i = 0; i < checkpoint->entries().size(); ++i) {
    EXPECT_EQ(checkpoint->Find(checkpoint->entries()[i].fqn), i);
  }
  EXPECT_EQ(checkpoint->Find("nothing"), std::nullopt);
}

TEST(Checkpoint, LocatesOnlyTheGivenEntries) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(CopyGolden(dir, "torch-2.11/sharded")));
  const uint32_t first = 0;
  ASSERT_OK(checkpoint->Locate(absl::MakeConstSpan(&first, 1)));
  for (size_t i = 0; i < checkpoint->entries().size(); ++i) {
    const TensorEntry* tensor = checkpoint->entries()[i].tensor();
    if (tensor == nullptr) continue;
    for (const ChunkLocation& location : tensor->locations) {
      EXPECT_EQ(location.located, i == 0);
    }
  }
  ASSERT_OK(checkpoint->LocateAll());
  // A located tensor needs no file any more.
  ASSERT_EQ(unlink(dir.Join("torch-2.11/sharded/__0_0.distcp").c_str()), 0);
  EXPECT_OK(checkpoint->LocateAll());
}

}  // namespace
}  // namespace dcp
