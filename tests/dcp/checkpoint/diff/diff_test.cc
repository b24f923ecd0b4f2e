// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/diff/diff.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/convert/convert.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::BytesOf;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::GoldenCase;
using ::dcp::testing::ObjectItem;
using ::dcp::testing::ReadGoldenCase;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::SmallTensor;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Kind = DiffFinding::Kind;

DiffReport Diffed(const std::string& a, const std::string& b,
                  DiffOptions options = {}) {
  absl::StatusOr<DiffReport> report =
      DiffCheckpoints(Disk(), a, b, std::move(options));
  EXPECT_OK(report);
  return *std::move(report);
}

// The only difference between two safetensors files with one tensor each.
DiffFinding OnlyDifference(const SmallTensor& a, const SmallTensor& b) {
  const TempDir dir;
  const DiffReport report =
      Diffed(dir.WriteFile("a.safetensors", SafetensorsBytes({a})),
             dir.WriteFile("b.safetensors", SafetensorsBytes({b})));
  EXPECT_THAT(report.findings, SizeIs(1));
  return report.findings.at(0);
}

SmallTensor Floats(const std::vector<float>& values) {
  return {"w",
          DType::kFloat32,
          {static_cast<int64_t>(values.size())},
          BytesOf<float>(values)};
}

TEST(Diff, ReportsHowFarValuesAreApart) {
  const DiffFinding finding = OnlyDifference(
      Floats({1, 2, 3, 4}), Floats({1, std::nextafter(2.0f, 3.0f), 3, 4.5}));
  EXPECT_EQ(finding.kind, Kind::kValues);
  EXPECT_EQ(finding.num_elements, 4u);
  EXPECT_EQ(finding.difference.num_different, 2u);
  EXPECT_EQ(finding.difference.first_different, 1u);
  EXPECT_EQ(finding.difference.max_abs, 0.5);
  EXPECT_EQ(finding.difference.max_ulp, uint64_t{1} << 20);
  const DiffFinding one_ulp =
      OnlyDifference(Floats({2}), Floats({std::nextafter(2.0f, 3.0f)}));
  EXPECT_EQ(one_ulp.difference.max_ulp, 1u);
}

TEST(Diff, ElementsWithinTheToleranceAreEqual) {
  const TempDir dir;
  const float nan = std::nanf("");
  const std::string a = dir.WriteFile(
      "a.safetensors", SafetensorsBytes({Floats({1, 100, 0, nan})}));
  const std::string b = dir.WriteFile(
      "b.safetensors", SafetensorsBytes({Floats({1.5, 101, -0.0f, -nan})}));
  const auto num_different = [&](std::optional<Tolerance> tolerance) {
    DiffOptions options;
    options.tolerance = tolerance;
    const DiffReport report = Diffed(a, b, std::move(options));
    if (report.findings.empty()) return uint64_t{0};
    return report.findings[0].difference.num_different;
  };
  EXPECT_EQ(num_different({}), 4u);
  EXPECT_EQ(num_different(Tolerance{}), 2u);
  EXPECT_EQ(num_different(Tolerance{.atol = 0.5}), 1u);
  EXPECT_EQ(num_different(Tolerance{.atol = 0.5, .rtol = 0.01}), 0u);
  EXPECT_EQ(
      num_different(Tolerance{.atol = 0.5, .rtol = 0.01, .equal_nan = false}),
      1u);
}

TEST(Diff, RefusesInvalidTolerances) {
  for (const Tolerance& tolerance :
       {Tolerance{.atol = -1}, Tolerance{.rtol = -0.5},
        Tolerance{.atol = std::nan("")}, Tolerance{.rtol = HUGE_VAL}}) {
    DiffOptions options;
    options.tolerance = tolerance;
    EXPECT_THAT(
        DiffCheckpoints(Disk(), "a", "b", std::move(options)).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tol is")));
  }
}

TEST(Diff, ReportsTheFirstDifferentIndex) {
  const SmallTensor a{"w", DType::kUInt8, {2, 3, 2}, std::string(12, 'x')};
  SmallTensor b = a;
  b.payload[9] = 'y';
  b.payload[11] = 'y';
  const DiffFinding finding = OnlyDifference(a, b);
  EXPECT_EQ(finding.difference.first_different, 9u);
  EXPECT_EQ(finding.first_index, (Dims{1, 1, 1}));
  const DiffFinding scalar = OnlyDifference({"w", DType::kUInt8, {}, "x"},
                                            {"w", DType::kUInt8, {}, "y"});
  EXPECT_EQ(scalar.first_index, Dims());
}

TEST(Diff, ShapesAndTypesDifferBeforeValues) {
  const SmallTensor w = Floats({1, 2});
  SmallTensor other = w;
  other.shape = {2, 1};
  DiffFinding finding = OnlyDifference(w, other);
  EXPECT_EQ(finding.kind, Kind::kShape);
  EXPECT_EQ(finding.in_a, "float32 [2]");
  EXPECT_EQ(finding.in_b, "float32 [2, 1]");
  other = w;
  other.dtype = DType::kInt32;
  finding = OnlyDifference(w, other);
  EXPECT_EQ(finding.kind, Kind::kDType);
  EXPECT_EQ(finding.in_b, "int32 [2]");
}

// One data file with the tensor w and an object.
DcpBuilder WithObject(const char* name, const Value& value) {
  DcpBuilder builder;
  builder.StartFile("f");
  builder.AddTensor("w", DType::kUInt8, {2}, "hi");
  builder.AddObject(name, ObjectItem(value));
  return builder;
}

TEST(Diff, ComparesTheMetadataOfSafetensors) {
  const TempDir dir;
  const std::string a = dir.WriteFile(
      "a.safetensors",
      SafetensorsBytes({Floats({1})}, {{"license", "mit"}, {"base", "x"}}));
  const std::string b = dir.WriteFile(
      "b.safetensors",
      SafetensorsBytes({Floats({1})}, {{"format", "pt"}, {"base", "y"}}));
  const DiffReport report = Diffed(a, b);
  ASSERT_THAT(report.findings, SizeIs(2));
  EXPECT_EQ(report.findings[0].name, "__metadata__.base");
  EXPECT_EQ(report.findings[0].kind, Kind::kObject);
  EXPECT_EQ(report.findings[0].in_a, "x");
  EXPECT_EQ(report.findings[0].in_b, "y");
  EXPECT_EQ(report.findings[1].name, "__metadata__.license");
  EXPECT_EQ(report.findings[1].kind, Kind::kOnlyInA);
  DiffOptions tensors;
  tensors.tensors_only = true;
  EXPECT_THAT(Diffed(a, b, std::move(tensors)).findings, IsEmpty());
}

TEST(Diff, ComparesObjectsAndNames) {
  const TempDir dir;
  const std::string a = WithObject("step", Value::Int(1)).Write(dir, "a");
  const std::string b = WithObject("step", Value::Int(2)).Write(dir, "b");
  const std::string c = WithObject("stop", Value::Int(1)).Write(dir, "c");
  EXPECT_THAT(Diffed(a, a).findings, IsEmpty());
  EXPECT_EQ(Diffed(a, a).num_objects_equal, 1u);
  EXPECT_EQ(Diffed(a, a).num_tensors_equal, 1u);
  DiffReport report = Diffed(a, b);
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].kind, Kind::kObject);
  EXPECT_EQ(report.findings[0].in_a, "1");
  EXPECT_EQ(report.findings[0].in_b, "2");
  report = Diffed(a, c);
  ASSERT_THAT(report.findings, SizeIs(2));
  EXPECT_EQ(report.findings[0].kind, Kind::kOnlyInA);
  EXPECT_EQ(report.findings[0].name, "step");
  EXPECT_EQ(report.findings[1].kind, Kind::kOnlyInB);
  EXPECT_EQ(report.findings[1].name, "stop");

  DiffOptions tensors_only;
  tensors_only.tensors_only = true;
  EXPECT_THAT(Diffed(a, c, std::move(tensors_only)).findings, IsEmpty());
  DiffOptions renamed;
  renamed.selection_b.renames = {"s/stop/step/"};
  EXPECT_THAT(Diffed(a, c, std::move(renamed)).findings, IsEmpty());
}

TEST(Diff, ATensorDiffersFromAnObject) {
  const TempDir dir;
  const std::string a = WithObject("x", Value::Int(1)).Write(dir, "a");
  DcpBuilder other;
  other.StartFile("f");
  other.AddTensor("w", DType::kUInt8, {2}, "hi");
  other.AddTensor("x", DType::kUInt8, {1}, "x");
  const DiffReport report = Diffed(a, other.Write(dir, "b"));
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].kind, Kind::kKind);
  EXPECT_EQ(report.findings[0].in_b, "uint8 [1]");
}

TEST(Diff, PatternsThatMatchNothingAtAllAreAMistake) {
  const TempDir dir;
  const std::string a = WithObject("x", Value::Int(1)).Write(dir, "a");
  DiffOptions options;
  options.selection_a.include = {"y*"};
  options.selection_b.include = {"y*"};
  EXPECT_THAT(DiffCheckpoints(Disk(), a, a, std::move(options)),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// A tuple with a tensor and a number is one object.
std::string WithTuple(const TempDir& dir, const char* name,
                      const std::string& payload, int64_t number) {
  ValueArena arena;
  DcpBuilder builder;
  builder.StartFile("f");
  builder.AddObject(
      "pair",
      TorchArchiveBytes(
          arena.Tuple({MakeTensor(arena, DType::kUInt8, {2}, false, "0"),
                       Value::Int(number)}),
          {payload}));
  return builder.Write(dir, name);
}

TEST(Diff, LooksIntoTuples) {
  const TempDir dir;
  const std::string a = WithTuple(dir, "a", "hi", 1);
  const std::string b = WithTuple(dir, "b", "ho", 1);
  EXPECT_THAT(Diffed(a, WithTuple(dir, "c", "hi", 1)).findings, IsEmpty());
  DiffReport report = Diffed(a, b);
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].kind, Kind::kValues);
  EXPECT_EQ(report.findings[0].name, "pair#0");
  EXPECT_EQ(report.findings[0].difference.first_different, 1u);
  report = Diffed(a, WithTuple(dir, "d", "hi", 2));
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].kind, Kind::kObject);
  EXPECT_EQ(report.findings[0].name, "pair");
}

TEST(Diff, FlatteningDoesNotMatter) {
  const TempDir dir;
  ValueArena arena;
  // Saved with flatten_state_dict=False: the dict is one object.
  DcpBuilder whole;
  whole.StartFile("f");
  whole.AddObject(
      "model",
      TorchArchiveBytes(
          arena.Dict({arena.Str("w"),
                      MakeTensor(arena, DType::kUInt8, {2}, false, "0"),
                      arena.Str("n"), Value::Int(5)}),
          {"hi"}));
  whole.metadata().has_planner_data = false;
  DcpBuilder flat;
  flat.StartFile("f");
  flat.AddTensor("model.w", DType::kUInt8, {2}, "hi");
  flat.AddObject("model.n", ObjectItem(Value::Int(5)));
  const DiffReport report =
      Diffed(whole.Write(dir, "whole"), flat.Write(dir, "flat"));
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(report.num_tensors_equal, 1u);
  EXPECT_EQ(report.num_objects_equal, 1u);
}

// PyTorch 2.2 flattened by an older rule than a .pt file is flattened here.
TEST(Diff, GoldenCheckpointsEqualTheirConversions) {
  for (const char* name : {"torch-2.2/sharded", "torch-2.11/sharded",
                           "torch-2.11/archive", "torch-2.15/train"}) {
    SCOPED_TRACE(name);
    const GoldenCase golden = ReadGoldenCase(name);
    const TempDir dir;
    const std::string from = CopyGolden(dir, golden.path);
    for (const char* out : {"out.pt", "out"}) {
      const std::string to = dir.Join(out);
      ConvertOptions options;
      options.consolidate = true;
      ASSERT_OK(ConvertCheckpoint(Disk(), from, to, std::move(options)));
      const DiffReport report = Diffed(from, to);
      EXPECT_THAT(report.findings, IsEmpty()) << out;
      EXPECT_EQ(report.num_tensors_equal, golden.tensors.size()) << out;
    }
  }
}

TEST(Diff, ObjectsThatAreNotReadAreComparedByTheirBytes) {
  const TempDir dir;
  ValueArena arena;
  const auto config = [&](const char* name, int64_t number) {
    const Value object =
        arena.New(arena.Global("mylib", "Config"), arena.Tuple({}));
    arena.SetState(object, arena.Dict({arena.Str("n"), Value::Int(number)}));
    DcpBuilder builder;
    builder.StartFile("__0_0.distcp");
    builder.AddObject("config", ObjectItem(object));
    return builder.Write(dir, name);
  };
  const std::string a = config("a", 1);
  EXPECT_THAT(Diffed(a, config("b", 1)).findings, IsEmpty());
  EXPECT_THAT(Diffed(a, config("c", 2)).findings, SizeIs(1));
  DiffOptions tensors;
  tensors.tensors_only = true;
  EXPECT_THAT(Diffed(a, dir.Join("c"), std::move(tensors)).findings, IsEmpty());
  const Value object =
      arena.New(arena.Global("mylib", "Config"), arena.Tuple({}));
  const std::string file = dir.WriteFile(
      "x.pt", TorchArchiveBytes(arena.Dict({arena.Str("config"), object}), {}));
  EXPECT_THAT(Diffed(file, file).findings, IsEmpty());
  const DiffReport mixed = Diffed(a, file);
  ASSERT_THAT(mixed.findings, SizeIs(1));
  EXPECT_EQ(mixed.findings[0].kind, Kind::kObject);
  EXPECT_THAT(mixed.findings[0].in_a, HasSubstr("not read"));
}

}  // namespace
}  // namespace dcp
