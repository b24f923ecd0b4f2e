// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/read/source_check.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kName[] = "layer.weight";

// Several blocks long, so that it is read in pieces.
SampleTensor LargeTensor() {
  return SampleTensor(kName, DType::kFloat32, {1500, 1000});
}

void SaveModel(FileSystem& fs, absl::string_view path) {
  SampleState state;
  state.Add(LargeTensor());
  state.Add(SampleTensor("other", DType::kBFloat16, {5, 3}));
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs, path, state.state(), coordinator, {}));
}

// Flips one bit in the middle of `text` in the file.
void FlipBitIn(FileSystem& fs, const std::string& path,
               const std::string& text) {
  absl::StatusOr<std::string> bytes =
      ReadFile(fs, path, uint64_t{1} << 30, /*follow_symlinks=*/false);
  ASSERT_OK(bytes);
  const size_t place = bytes->find(text);
  ASSERT_NE(place, std::string::npos);
  char& byte = (*bytes)[place + text.size() / 2];
  byte = static_cast<char>(byte ^ 1);
  ASSERT_OK(fs.Remove(path));
  ASSERT_OK(WriteFile(fs, path, *bytes));
}

ConvertOptions OptionsFor(absl::string_view mesh, absl::string_view placement) {
  ConvertOptions options;
  if (mesh.empty()) return options;
  options.mesh = *ParseMesh(mesh);
  options.placements = {{"layer*", *ParsePlacements(placement)}};
  return options;
}

struct Target {
  std::string dst;
  std::string mesh;
  std::string placement;
};

std::vector<Target> Targets() {
  return {{"/dcp", "", ""},
          {"/rows", "x=3", "S(0)"},
          {"/columns", "x=4", "S(1)"},
          {"/both", "a=2,b=2", "S(1),S(0)"},
          {"/m.pt", "", ""},
          {"/m.safetensors", "", ""}};
}

ConvertOptions OptionsForTarget(const Target& target) {
  ConvertOptions options = OptionsFor(target.mesh, target.placement);
  if (target.dst.find('.') == std::string::npos) options.to = Format::kDcp;
  return options;
}

void ExpectRefused(FileSystem& fs, absl::string_view src,
                   const std::string& file) {
  for (const Target& target : Targets()) {
    SCOPED_TRACE(absl::StrCat(src, " to ", target.dst));
    const auto refused =
        ConvertCheckpoint(fs, src, target.dst, OptionsForTarget(target));
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kDataLoss,
                                  AllOf(HasSubstr(kName), HasSubstr(file),
                                        HasSubstr("damaged"))));
    EXPECT_EQ(StatusSide(refused.status()), ErrorSide::kSource);
    EXPECT_THAT(fs.Stat(target.dst), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_EQ(fs.List("/")->size(), 1u) << "something was left behind";
  }
}

TEST(SourceCheck, FindsAFlippedBitInADcpCheckpoint) {
  SimStorage fs({.percent_short = 20, .percent_interrupted = 20});
  SaveModel(fs, "/src");
  FlipBitIn(fs, "/src/__0_0.distcp", LargeTensor().bytes);
  ExpectRefused(fs, "/src", "/src/__0_0.distcp");
}

TEST(SourceCheck, FindsAFlippedBitInATorchFile) {
  SimStorage fs;
  SaveModel(fs, "/src");
  ASSERT_OK(ConvertCheckpoint(fs, "/src", "/src.pt", {}));
  FlipBitIn(fs, "/src.pt", LargeTensor().bytes);
  SimStorage other;
  const auto bytes = ReadFile(fs, "/src.pt", uint64_t{1} << 30, false);
  ASSERT_OK(WriteFile(other, "/src.pt", *bytes));
  ExpectRefused(other, "/src.pt", "/src.pt");
}

// Digests only: no CRC is recorded.
TEST(SourceCheck, FindsAFlippedBitInASafetensorsDirectory) {
  SimStorage saved;
  SaveModel(saved, "/first");
  ConvertOptions options;
  options.to = Format::kSafetensors;
  ASSERT_OK(ConvertCheckpoint(saved, "/first", "/src", std::move(options)));
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/src"));
  for (const char* name : {"/src/model.safetensors", "/src/.digests"}) {
    ASSERT_OK(
        WriteFile(fs, name, *ReadFile(saved, name, uint64_t{1} << 30, false)));
  }
  FlipBitIn(fs, "/src/model.safetensors", LargeTensor().bytes);
  ExpectRefused(fs, "/src", "/src/model.safetensors");
}

TEST(SourceCheck, FindsAFlippedBitInAnObject) {
  SimStorage fs;
  ValueArena arena;
  SampleState state;
  state.Add(SampleTensor("w", DType::kFloat32, {2}));
  state.AddObject("step", arena.Str("the number of steps"));
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs, "/src", state.state(), coordinator, {}));
  FlipBitIn(fs, "/src/__0_0.distcp", "the number of steps");
  EXPECT_THAT(ConvertCheckpoint(fs, "/src", "/dst", {}),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("step"), HasSubstr("data.pkl"))));
  EXPECT_THAT(fs.Stat("/dst"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(SourceCheck, ChecksASoundSourceForEveryOutput) {
  SimStorage fs({.percent_short = 20});
  SaveModel(fs, "/src");
  ConvertOptions directory;
  directory.to = Format::kSafetensors;
  ASSERT_OK(ConvertCheckpoint(fs, "/src", "/st", std::move(directory)));
  ASSERT_OK(ConvertCheckpoint(fs, "/src", "/src.pt", {}));
  const uint64_t num_bytes = LargeTensor().bytes.size() + 30;
  int num_made = 0;
  for (const std::string src : {"/src", "/st", "/src.pt"}) {
    for (const Target& target : Targets()) {
      SCOPED_TRACE(absl::StrCat(src, " to ", target.dst));
      const std::string dst =
          absl::StrCat("/", num_made++, "_", target.dst.substr(1));
      const auto plan =
          ConvertCheckpoint(fs, src, dst, OptionsForTarget(target));
      ASSERT_OK(plan);
      EXPECT_TRUE(plan->check.checked);
      EXPECT_EQ(plan->check.bytes_checked, num_bytes);
      EXPECT_EQ(plan->check.num_crcs_checked, src == "/st" ? 0u : 2u);
      EXPECT_EQ(plan->check.num_digests_checked, src == "/st" ? 2u : 0u);
      EXPECT_EQ(plan->check.num_items_unchecked, 0u);
      EXPECT_EQ(plan->check.bytes_unchecked, 0u);
    }
  }
}

TEST(SourceCheck, CanBeSwitchedOff) {
  SimStorage fs;
  SaveModel(fs, "/src");
  FlipBitIn(fs, "/src/__0_0.distcp", LargeTensor().bytes);
  ConvertOptions options;
  options.verify = false;
  const auto plan = ConvertCheckpoint(fs, "/src", "/dst", std::move(options));
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->check.checked);
  EXPECT_EQ(plan->check.bytes_checked, 0u);
}

TEST(SourceCheck, CountsItemsWithoutChecksum) {
  SimStorage fs;
  ASSERT_OK(WriteFile(fs, "/m.safetensors",
                      SafetensorsBytes({{"a", DType::kUInt8, {4}, "abcd"},
                                        {"b", DType::kUInt8, {2}, "ef"}})));
  const auto plan = ConvertCheckpoint(fs, "/m.safetensors", "/m.pt", {});
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->check.checked);
  EXPECT_EQ(plan->check.num_items_unchecked, 2u);
  EXPECT_EQ(plan->check.bytes_unchecked, 6u);
}

// A .pt file with one 100-byte storage and two views of it.
std::string TwoViews(ValueArena& arena) {
  const auto view = [&](int64_t offset, int64_t size) {
    const Value id = arena.Persistent(
        arena.Tuple({arena.Str("storage"), arena.Global("torch", "ByteStorage"),
                     arena.Str("0"), arena.Str("cpu"), Value::Int(100)}));
    return arena.Call(
        arena.Global("torch._utils", "_rebuild_tensor_v2"),
        arena.Tuple({id, Value::Int(offset), arena.Tuple({Value::Int(size)}),
                     arena.Tuple({Value::Int(1)}), Value::Bool(false),
                     arena.Call(arena.Global("collections", "OrderedDict"),
                                arena.Tuple({}))}));
  };
  const Value root = arena.Dict(
      {arena.Str("most"), view(10, 80), arena.Str("little"), view(95, 3)});
  std::string storage;
  for (int i = 0; i < 100; ++i) storage += static_cast<char>(i + 1);
  return TorchArchiveBytes(root, {storage});
}

TEST(SourceCheck, ReadsTheRestOfAMostlyReadStorage) {
  SimStorage fs;
  ValueArena arena;
  std::string bytes = TwoViews(arena);
  ASSERT_OK(WriteFile(fs, "/m.pt", bytes));
  ConvertOptions most;
  most.selection.include = {"most"};
  const auto plan = ConvertCheckpoint(fs, "/m.pt", "/a", std::move(most));
  ASSERT_OK(plan);
  EXPECT_EQ(plan->check.num_items_unchecked, 0u);
  EXPECT_EQ(plan->check.bytes_checked, 100u);
  // Damaged data is read only for the check, and still found.
  FlipBitIn(fs, "/m.pt", std::string("\x01\x02\x03"));
  ConvertOptions again;
  again.selection.include = {"most"};
  EXPECT_THAT(ConvertCheckpoint(fs, "/m.pt", "/b", std::move(again)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("most")));
  EXPECT_THAT(fs.Stat("/b"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(SourceCheck, CountsStoragesThatAreMostlyUnread) {
  SimStorage fs;
  ValueArena arena;
  ASSERT_OK(WriteFile(fs, "/m.pt", TwoViews(arena)));
  ConvertOptions little;
  little.selection.include = {"little"};
  const auto plan = ConvertCheckpoint(fs, "/m.pt", "/a", std::move(little));
  ASSERT_OK(plan);
  EXPECT_EQ(plan->check.num_items_unchecked, 1u);
  EXPECT_EQ(plan->check.bytes_checked, 0u);
  EXPECT_GE(plan->check.bytes_unchecked, 3u);
}

}  // namespace
}  // namespace dcp
