// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/torch_opener.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::GetEntry;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::HasSubstr;

TEST(TorchOpener, KeepsStridesAndRequiresGrad) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenCheckpoint(CopyGolden(dir, "torch-2.11/archive.pt")));
  const auto tensor = [&](const char* name) -> const TensorEntry& {
    return *GetEntry(*checkpoint, name).tensor();
  };
  EXPECT_TRUE(tensor("param").requires_grad);
  EXPECT_FALSE(tensor("frozen").requires_grad);
  EXPECT_TRUE(tensor("conj").locations[0].conj);
  EXPECT_TRUE(tensor("base").locations[0].strides.empty());
  EXPECT_EQ(tensor("transposed").locations[0].strides, Dims({1, 6}));
  EXPECT_EQ(tensor("broadcast").locations[0].strides, Dims({0, 1}));
  // A view that begins at the second row.
  EXPECT_EQ(tensor("rows").locations[0].payload_offset,
            tensor("base").locations[0].payload_offset + 6 * sizeof(float));
}

TEST(TorchOpener, NamesTheContainer) {
  const TempDir dir;
  const auto container_of = [&](const char* path) {
    const auto parts =
        OpenTorch(Disk(), OneModelFile(CopyGolden(dir, path)), {});
    EXPECT_OK(parts);
    return parts->properties;
  };
  EXPECT_THAT(container_of("torch-2.11/archive.pt"),
              ::testing::ElementsAre(std::pair("container", "zip")));
  EXPECT_THAT(container_of("torch-2.11/legacy.pt"),
              ::testing::ElementsAre(std::pair("container", "legacy")));
}

TEST(TorchOpener, ObjectsOutliveThePickle) {
  const TempDir dir;
  ValueArena arena;
  const Value tensor = MakeTensor(arena, DType::kUInt8, {2}, false, "0");
  const Value root =
      arena.Dict({arena.Str("pair"), arena.Tuple({tensor, arena.Str("text")})});
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenCheckpoint(dir.WriteFile("x.pt", TorchArchiveBytes(root, {"hi"}))));
  const ObjectEntry& pair = *GetEntry(*checkpoint, "pair").object();
  EXPECT_EQ(pair.value.items()[1].text(), "text");
  EXPECT_EQ(pair.tensors.count(pair.value.items()[0].identity()), 1u);
}

TEST(TorchOpener, RefusesOtherValuesThanStateDicts) {
  const TempDir dir;
  ValueArena arena;
  EXPECT_THAT(OpenCheckpoint(dir.WriteFile(
                  "x.pt", TorchArchiveBytes(arena.List({Value::Int(1)}), {}))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("x.pt")));
  const Value tensor = MakeTensor(arena, DType::kFloat32, {2}, false, "0");
  const Value root = arena.Dict({arena.Str("w"), tensor});
  EXPECT_THAT(
      OpenCheckpoint(dir.WriteFile("x.pt", TorchArchiveBytes(root, {"123"}))),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("w: ")));
  EXPECT_THAT(OpenCheckpoint(dir.WriteFile("x.pt", std::string(1000, 'x'))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("x.pt")));
}

TEST(TorchOpener, OneUnknownObjectStopsNothingElse) {
  const TempDir dir;
  ValueArena arena;
  const Value config =
      arena.New(arena.Global("mylib", "Config"), arena.Tuple({}));
  const Value sparse =
      arena.Call(arena.Global("torch._utils", "_rebuild_sparse_tensor"),
                 arena.Tuple({Value()}));
  const Value root = arena.Dict(
      {arena.Str("w"), MakeTensor(arena, DType::kFloat32, {1}, false, "0"),
       arena.Str("cfg"), arena.Tuple({config}), arena.Str("s"), sparse,
       arena.Str("odd"), arena.Dict({config, Value::Int(1)})});
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenCheckpoint(dir.WriteFile("x.pt", TorchArchiveBytes(root, {"1234"}))));
  EXPECT_NE(GetEntry(*checkpoint, "w").tensor(), nullptr);
  for (const char* name : {"cfg", "odd"}) {
    EXPECT_THAT(GetEntry(*checkpoint, name).object()->unreadable,
                StatusIs(absl::StatusCode::kPermissionDenied,
                         HasSubstr("mylib.Config")));
  }
  EXPECT_THAT(GetEntry(*checkpoint, "s").object()->unreadable,
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(ToString(*GetEntry(*checkpoint, "cfg").object(), 100),
              HasSubstr("not read: global mylib.Config"));
}

TEST(TorchOpener, RefusesAWholeModuleWithAdvice) {
  const TempDir dir;
  ValueArena arena;
  const Value module =
      arena.New(arena.Global("models", "Net"), arena.Tuple({}));
  arena.SetState(module, arena.Dict({arena.Str("_parameters"), arena.Dict(),
                                     arena.Str("_modules"), arena.Dict()}));
  EXPECT_THAT(
      OpenCheckpoint(dir.WriteFile("x.pt", TorchArchiveBytes(module, {}))),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("state_dict()")));
}

TEST(TorchOpener, RefusesTruncations) {
  const TempDir dir;
  for (const char* name : {"torch-2.11/archive.pt", "torch-2.11/legacy.pt"}) {
    const std::string whole = testing::ReadFile(CopyGolden(dir, name));
    for (size_t length = 0; length < whole.size();
         length += whole.size() / 50 + 1) {
      EXPECT_THAT(
          OpenCheckpoint(dir.WriteFile("x.pt", whole.substr(0, length))),
          StatusIs(absl::StatusCode::kDataLoss))
          << name << " " << length;
    }
  }
}

// An unreadable value has a name, and the rest can be read.
TEST(TorchOpener, AnArrayOfObjectsStopsNothingElse) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, "edges/object_array.pt");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  EXPECT_THAT(GetEntry(*checkpoint, "v").object()->unreadable,
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("the dtype 'O8' may hold objects")));
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadAll(*checkpoint));
  EXPECT_EQ(loaded["w"], testing::BytesOf<float>({1, 1}));
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       VerifyCheckpoint(Disk(), path, {}));
  EXPECT_TRUE(report.findings.empty());
  EXPECT_THAT(ConvertCheckpoint(Disk(), path, dir.Join("o.pt"), {}),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("v: numpy objects are not allowed")));
  ConvertOptions dropped;
  dropped.drop_unreadable = true;
  EXPECT_OK(
      ConvertCheckpoint(Disk(), path, dir.Join("o.pt"), std::move(dropped)));
}

TEST(TorchOpener, JaggedTensorsAreCarried) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, "edges/jagged.pt");
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                       ConvertCheckpoint(Disk(), path, dir.Join("o.pt"), {}));
  EXPECT_EQ(plan.check.num_items_unchecked, 0u);
  ASSERT_OK_AND_ASSIGN(const DiffReport report,
                       DiffCheckpoints(Disk(), path, dir.Join("o.pt"), {}));
  EXPECT_TRUE(report.findings.empty());
  EXPECT_THAT(ConvertCheckpoint(Disk(), path, dir.Join("o.safetensors"), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("nt")));
  // Both rows' elements, and where the rows begin.
  const std::string whole = testing::ReadFile(path);
  for (const std::string& bytes : {testing::BytesOf<float>({1, 1, 1, 1, 1}),
                                   testing::BytesOf<int64_t>({0, 2, 5})}) {
    std::string damaged = whole;
    damaged[damaged.find(bytes) + 8] ^= 1;
    const std::string bad = dir.WriteFile("bad.pt", damaged);
    EXPECT_THAT(ConvertCheckpoint(Disk(), bad, dir.Join("none.pt"), {}),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("nt: ")));
    ASSERT_OK_AND_ASSIGN(const DiffReport differs,
                         DiffCheckpoints(Disk(), path, bad, {}));
    ASSERT_EQ(differs.findings.size(), 1u);
    EXPECT_THAT(differs.findings[0].name, HasSubstr("nt#"));
  }
}

TEST(TorchOpener, AnExpandedTensorStopsNothingElse) {
  const TempDir dir;
  ValueArena arena;
  const Value tensor = MakeTensor(arena, DType::kUInt8, {1}, false, "0");
  const absl::Span<const Value> args = tensor.args().items();
  const Value expanded =
      arena.Call(tensor.callable(),
                 arena.Tuple({args[0], args[1],
                              arena.Tuple({Value::Int(int64_t{1000000000000})}),
                              arena.Tuple({Value::Int(0)}), args[4], args[5]}));
  const Value root =
      arena.Dict({arena.Str("wide"), expanded, arena.Str("w"), tensor});
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenCheckpoint(dir.WriteFile("x.pt", TorchArchiveBytes(root, {"1"}))));
  EXPECT_THAT(GetEntry(*checkpoint, "wide").object()->unreadable,
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("expands a storage of 1 elements")));
  EXPECT_NE(GetEntry(*checkpoint, "w").tensor(), nullptr);
}

TEST(TorchOpener, ASingleTensorNeedsAName) {
  const TempDir dir;
  ValueArena arena;
  const Value root = MakeTensor(arena, DType::kUInt8, {1}, false, "0");
  EXPECT_THAT(
      OpenCheckpoint(dir.WriteFile("x.pt", TorchArchiveBytes(root, {"1"}))),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("a single tensor; give it a name in Python: "
                         "torch.save({'NAME'")));
}

}  // namespace
}  // namespace dcp
