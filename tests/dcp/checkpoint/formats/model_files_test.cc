// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/model_files.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/format/safetensors/safetensors_index.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::BytesOf;
using ::dcp::testing::Disk;
using ::dcp::testing::GetEntry;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A .bin shard: one float tensor.
std::string Bin(const char* name, const std::vector<float>& values) {
  ValueArena arena;
  const Value tensor =
      MakeTensor(arena, DType::kFloat32, {static_cast<int64_t>(values.size())},
                 false, "0");
  return TorchArchiveBytes(arena.Dict({arena.Str(name), tensor}),
                           {BytesOf<float>(values)});
}

std::string Safetensors(const char* name, const std::vector<float>& values) {
  return SafetensorsBytes({{name,
                            DType::kFloat32,
                            {static_cast<int64_t>(values.size())},
                            BytesOf<float>(values)}});
}

using WeightMap = std::vector<std::pair<std::string, std::string>>;
std::string WriteIndex(const WeightMap& weight_map) {
  return WriteSafetensorsIndex(4, weight_map);
}

constexpr char kFirst[] = "pytorch_model-00001-of-00002.bin";
constexpr char kSecond[] = "pytorch_model-00002-of-00002.bin";
constexpr char kBinIndex[] = "pytorch_model.bin.index.json";

// A model in two .bin shards, a and b, in the directory "m".
void WriteModelShards(const TempDir& dir) {
  dir.WriteFile(std::string("m/") + kFirst, Bin("a", {1, 2}));
  dir.WriteFile(std::string("m/") + kSecond, Bin("b", {3}));
}

absl::StatusOr<std::map<std::string, std::string>> LoadFrom(
    const std::string& path) {
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  return LoadAll(*checkpoint);
}

// Every way to name the model from WriteModelShards must give this result.
void ExpectShards(const std::string& path) {
  SCOPED_TRACE(path);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  EXPECT_EQ(checkpoint->format(), Format::kTorch);
  EXPECT_THAT(checkpoint->files().names(), ElementsAre(kFirst, kSecond));
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadAll(*checkpoint));
  EXPECT_THAT(loaded, ElementsAre(std::pair("a", BytesOf<float>({1, 2})),
                                  std::pair("b", BytesOf<float>({3}))));
}

TEST(ModelFiles, BinShardsOpenWithAndWithoutTheirIndex) {
  const TempDir dir;
  WriteModelShards(dir);
  dir.WriteFile("m/training_args.bin", "not a model");
  ExpectShards(dir.Join("m"));
  const std::string index =
      dir.WriteFile(std::string("m/") + kBinIndex,
                    WriteIndex({{"a", kFirst}, {"b", kSecond}}));
  dir.WriteFile("m/other.bin", "not in the index");
  ExpectShards(dir.Join("m"));
  ExpectShards(index);
}

TEST(ModelFiles, ADirectoryOfOneBinFileIsThatFile) {
  const TempDir dir;
  dir.WriteFile("m/pytorch_model.bin", Bin("a", {1}));
  dir.WriteFile("m/adapter.bin", "not the model");
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadFrom(dir.Join("m")));
  EXPECT_THAT(loaded, ElementsAre(std::pair("a", BytesOf<float>({1}))));
  dir.WriteFile("n/weights.bin", Bin("a", {1}));
  EXPECT_OK(LoadFrom(dir.Join("n")));
}

TEST(ModelFiles, AnIndexOfAnyNameOpensByItsPath) {
  const TempDir dir;
  dir.WriteFile("m/1.safetensors", Safetensors("a", {1}));
  dir.WriteFile("m/2.safetensors", Safetensors("b", {2}));
  // Neither the index's name nor a file's says the format.
  dir.WriteFile("m/weights", Safetensors("c", {3}));
  const std::string one = dir.WriteFile("m/diffusion.index.json",
                                        WriteIndex({{"a", "1.safetensors"}}));
  const std::string other =
      dir.WriteFile("m/text.bin.index.json", WriteIndex({{"c", "weights"}}));
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadFrom(one));
  EXPECT_THAT(loaded, ElementsAre(std::pair("a", BytesOf<float>({1}))));
  ASSERT_OK_AND_ASSIGN(loaded, LoadFrom(other));
  EXPECT_THAT(loaded, ElementsAre(std::pair("c", BytesOf<float>({3}))));
}

TEST(ModelFiles, SafetensorsComeBeforeBinFiles) {
  const TempDir dir;
  WriteModelShards(dir);
  dir.WriteFile("m/model.safetensors", Safetensors("s", {1}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("m")));
  EXPECT_EQ(checkpoint->format(), Format::kSafetensors);
}

TEST(ModelFiles, ChecksTheIndexOfBinShards) {
  const TempDir dir;
  WriteModelShards(dir);
  const auto open_with = [&](const std::string& index) {
    dir.WriteFile(std::string("m/") + kBinIndex, index);
    return OpenCheckpoint(dir.Join("m")).status();
  };
  EXPECT_THAT(open_with(WriteIndex({{"a", kFirst}, {"b", kFirst}})),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("b is in pytorch_model-00001-of-00002.bin, "
                                 "which lacks it")));
  EXPECT_THAT(open_with(WriteIndex({{"a", kSecond}, {"b", kFirst}})),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("it is in pytorch_model-0000")));
  EXPECT_THAT(open_with(WriteIndex({{"a", kFirst}, {"b", "absent.bin"}})),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.bin")));
  EXPECT_THAT(open_with(WriteIndex({{"a", std::string("../m/") + kFirst}})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("..")));
  EXPECT_THAT(open_with(WriteIndex({{"a", dir.Join("m/") + kFirst}})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("absolute")));
  EXPECT_THAT(open_with(WriteIndex({})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no tensor")));
  EXPECT_THAT(open_with("[]"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(kBinIndex)));
}

TEST(ModelFiles, LeavesOutTensorsThatTheIndexDoesNotName) {
  const TempDir dir;
  WriteModelShards(dir);
  // An index names b only in the second file, and nothing called c.
  ValueArena arena;
  const auto tensor = [&](absl::string_view key) {
    return MakeTensor(arena, DType::kFloat32, {1}, false, key);
  };
  dir.WriteFile(
      std::string("m/") + kFirst,
      TorchArchiveBytes(
          arena.Dict({arena.Str("a"), tensor("0"), arena.Str("b"), tensor("1"),
                      arena.Str("c"), tensor("2")}),
          {BytesOf<float>({1}), BytesOf<float>({8}), BytesOf<float>({9})}));
  dir.WriteFile(std::string("m/") + kBinIndex,
                WriteIndex({{"a", kFirst}, {"b", kSecond}}));
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadFrom(dir.Join("m")));
  EXPECT_THAT(loaded, ElementsAre(std::pair("a", BytesOf<float>({1})),
                                  std::pair("b", BytesOf<float>({3}))));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(dir.Join("m")));
  EXPECT_THAT(LossTexts(checkpoint->losses()),
              ElementsAre("c, which the index does not name, are left out"));
  // Also for a single file, which otherwise would be written again unchanged.
  dir.WriteFile(std::string("m/") + kBinIndex, WriteIndex({{"a", kFirst}}));
  ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("a.pt"), {}));
  ASSERT_OK_AND_ASSIGN(loaded, LoadFrom(dir.Join("a.pt")));
  EXPECT_THAT(loaded, ElementsAre(std::pair("a", BytesOf<float>({1}))));
}

TEST(ModelFiles, OneNameInTwoShardsCannotBeRead) {
  const TempDir dir;
  dir.WriteFile(std::string("m/") + kFirst, Bin("a", {1}));
  dir.WriteFile(std::string("m/") + kSecond, Bin("a", {2}));
  EXPECT_THAT(
      LoadFrom(dir.Join("m")),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("a is in pytorch_model-00001-of-00002.bin and in "
                         "pytorch_model-00002-of-00002.bin")));
}

TEST(ModelFiles, AMissingShardIsNamedWithoutAnIndexToo) {
  const TempDir dir;
  dir.WriteFile("m/x-00001-of-00003.bin", Bin("a", {1}));
  dir.WriteFile("m/x-00003-of-00003.bin", Bin("c", {1}));
  EXPECT_THAT(OpenCheckpoint(dir.Join("m")),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("missing: x-00002-of-00003.bin")));
  dir.WriteFile("s/x-00001-of-00002.safetensors", Safetensors("a", {1}));
  EXPECT_THAT(OpenCheckpoint(dir.Join("s")),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("missing: x-00002-of-00002.safetensors")));
  // DCP's Hugging Face writer: rank 1 had no part in the second file.
  dir.WriteFile("d/shard-00001-model-00001-of-00002.safetensors",
                Safetensors("a", {1}));
  EXPECT_OK(OpenCheckpoint(dir.Join("d")));
}

TEST(ModelFiles, SeveralBinModelsAreNamed) {
  const TempDir dir;
  dir.WriteFile("m/a.bin", Bin("a", {1}));
  dir.WriteFile("m/b.bin", Bin("b", {1}));
  EXPECT_THAT(OpenCheckpoint(dir.Join("m")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("several models: a.bin, b.bin")));
  // A trainer's files are not a model.
  dir.WriteFile("n/optimizer.bin", Bin("a", {1}));
  EXPECT_THAT(OpenCheckpoint(dir.Join("n")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(".bin")));
}

TEST(ModelFiles, EveryVerbTakesBinShards) {
  const TempDir dir;
  WriteModelShards(dir);
  for (const char* dst : {"out.pt", "out.safetensors", "out"}) {
    SCOPED_TRACE(dst);
    ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join(dst), {}));
    std::map<std::string, std::string> loaded;
    ASSERT_OK_AND_ASSIGN(loaded, LoadFrom(dir.Join(dst)));
    EXPECT_THAT(loaded, ElementsAre(std::pair("a", BytesOf<float>({1, 2})),
                                    std::pair("b", BytesOf<float>({3}))));
    ASSERT_OK_AND_ASSIGN(
        const DiffReport report,
        DiffCheckpoints(Disk(), dir.Join("m"), dir.Join(dst), {}));
    EXPECT_TRUE(report.findings.empty());
    EXPECT_EQ(report.num_tensors_equal, 2u);
  }
}

TEST(ModelFiles, AFlippedBitOfAnyShardIsFound) {
  const TempDir dir;
  WriteModelShards(dir);
  ASSERT_OK_AND_ASSIGN(const VerifyReport sound,
                       VerifyCheckpoint(Disk(), dir.Join("m"), {}));
  EXPECT_TRUE(sound.findings.empty());
  EXPECT_EQ(sound.num_items_unchecked, 0u);
  std::string bytes = Bin("b", {3});
  const size_t at = bytes.find(BytesOf<float>({3}));
  ASSERT_NE(at, std::string::npos);
  bytes[at] ^= 1;
  dir.WriteFile(std::string("m/") + kSecond, bytes);
  ASSERT_OK_AND_ASSIGN(const VerifyReport damaged,
                       VerifyCheckpoint(Disk(), dir.Join("m"), {}));
  ASSERT_EQ(damaged.findings.size(), 1u);
  EXPECT_EQ(damaged.findings[0].name, "b");
  EXPECT_EQ(damaged.findings[0].file, kSecond);
  EXPECT_THAT(
      ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("x.safetensors"), {}),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("b")));
}

// An object that is not read cannot be carried over into one new pickle.
TEST(ModelFiles, UnreadableObjectsInShardsAreNamed) {
  const TempDir dir;
  WriteModelShards(dir);
  ValueArena arena;
  const Value sparse =
      arena.Call(arena.Global("torch._utils", "_rebuild_sparse_tensor"),
                 arena.Tuple({Value()}));
  dir.WriteFile(std::string("m/") + kFirst,
                TorchArchiveBytes(arena.Dict({arena.Str("s"), sparse}), {}));
  EXPECT_THAT(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("x.pt"), {}),
              StatusIs(::testing::_, HasSubstr("s: ")));
}

}  // namespace
}  // namespace dcp
