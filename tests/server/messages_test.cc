#include "server/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

template <typename T>
T Proto(const std::string& text) {
  T proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto))
      << text;
  return proto;
}

// A message that is refused, and how the error begins.
struct Refused {
  const char* text;
  const char* error;
};

TEST(Messages, SourceIsPathAndRank) {
  ASSERT_OK_AND_ASSIGN(
      SourceSpec spec,
      SourceFromProto(Proto<v1::Source>("path: '/a' rank: 3"), "source"));
  EXPECT_EQ(spec.path, "/a");
  EXPECT_EQ(spec.open.rank, 3);
  ASSERT_OK_AND_ASSIGN(
      spec, SourceFromProto(Proto<v1::Source>("path: '/a'"), "source"));
  EXPECT_EQ(spec.open.rank, -1);
}

TEST(Messages, SourceIsChecked) {
  for (const Refused& refused : std::vector<Refused>{
           {"", "a.path is empty"},
           {"path: 'a\\000b'", "a.path has a NUL"},
           {"path: '/a' rank: -1", "a.rank is -1"},
           {"path: '/a' rank: 1048576", "a.rank is 1048576"},
       }) {
    EXPECT_THAT(SourceFromProto(Proto<v1::Source>(refused.text), "a"),
                StatusIs(kInvalid, StartsWith(refused.error)));
  }
  v1::Source source;
  source.set_path(std::string(5000, 'a'));
  EXPECT_THAT(SourceFromProto(source, "a"),
              StatusIs(kInvalid, StartsWith("a.path has 5000 bytes")));
}

TEST(Messages, FormatsComeAndGo) {
  for (const Format format :
       {Format::kDcp, Format::kSafetensors, Format::kTorch}) {
    EXPECT_THAT(FormatFromProto(FormatToProto(format), "format"),
                IsOkAndHolds(std::optional<Format>(format)));
  }
  EXPECT_THAT(FormatFromProto(v1::FORMAT_UNSPECIFIED, "format"),
              IsOkAndHolds(std::optional<Format>()));
  EXPECT_THAT(FormatFromProto(static_cast<v1::Format>(77), "format"),
              StatusIs(kInvalid, StartsWith("format is 77")));
}

TEST(Messages, BoxesComeAndGo) {
  for (const Box& box : {Box{}, Box{{1, 2}, {3, 0}}}) {
    v1::Box proto;
    BoxToProto(box, proto);
    EXPECT_THAT(BoxFromProto(proto, "box"), IsOkAndHolds(box));
  }
}

TEST(Messages, BoxesAreChecked) {
  for (const Refused& refused : std::vector<Refused>{
           {"offsets: 1", "box has 1 offsets and 0 sizes"},
           {"offsets: -1 sizes: 1", "box.offsets[0] is -1"},
           {"offsets: [0, 0] sizes: [1, -9223372036854775808]",
            "box.sizes[1] is -9223372036854775808"},
       }) {
    EXPECT_THAT(BoxFromProto(Proto<v1::Box>(refused.text), "box"),
                StatusIs(kInvalid, StartsWith(refused.error)));
  }
  v1::Box deep;
  for (int i = 0; i < 65; ++i) deep.add_offsets(0), deep.add_sizes(1);
  EXPECT_THAT(BoxFromProto(deep, "box"),
              StatusIs(kInvalid, StartsWith("box has 65 dimensions")));
}

TEST(Messages, MeshesComeAndGo) {
  const Mesh mesh{{{"replicate", 2}, {"shard", 3}}};
  v1::Mesh proto;
  MeshToProto(mesh, proto);
  ASSERT_OK_AND_ASSIGN(const Mesh back, MeshFromProto(proto, "mesh"));
  EXPECT_EQ(ToString(back), "replicate=2,shard=3");
}

TEST(Messages, MeshesAreChecked) {
  for (const Refused& refused : std::vector<Refused>{
           {"", "mesh.axes has 0 entries"},
           {"axes { size: 2 }", "mesh.axes[0].name is ''"},
           {"axes { name: 'a b' size: 2 }", "mesh.axes[0].name is 'a b'"},
           {"axes { name: 'a' size: 2 } axes { name: 'a' size: 2 }",
            "mesh.axes[1].name is 'a': another"},
           {"axes { name: 'a' }", "mesh.axes[0].size is 0"},
           {"axes { name: 'a' size: -2 }", "mesh.axes[0].size is -2"},
           {"axes { name: 'a' size: 1048577 }", "mesh has more than 1048576"},
           {"axes { name: 'a' size: 1048576 } axes { name: 'b' size: 2 }",
            "mesh has more than 1048576"},
       }) {
    EXPECT_THAT(MeshFromProto(Proto<v1::Mesh>(refused.text), "mesh"),
                StatusIs(kInvalid, StartsWith(refused.error)));
  }
  v1::Mesh many;
  for (int i = 0; i < 17; ++i) {
    many.add_axes()->set_name(absl::StrCat("a", i));
  }
  EXPECT_THAT(MeshFromProto(many, "mesh"),
              StatusIs(kInvalid, StartsWith("mesh.axes has 17 entries")));
}

TEST(Messages, CoordinatesLieInTheMesh) {
  const Mesh mesh{{{"a", 2}, {"b", 3}}};
  google::protobuf::RepeatedField<int64_t> coordinate;
  coordinate.Add(1);
  EXPECT_THAT(CoordinateFromProto(coordinate, mesh, "c"),
              StatusIs(kInvalid, StartsWith("c has 1 entries")));
  coordinate.Add(2);
  EXPECT_THAT(CoordinateFromProto(coordinate, mesh, "c"),
              IsOkAndHolds(ElementsAre(1, 2)));
  coordinate[1] = 3;
  EXPECT_THAT(CoordinateFromProto(coordinate, mesh, "c"),
              StatusIs(kInvalid, StartsWith("c[1] is 3: axis 'b' has 0 to 2")));
  coordinate[1] = -1;
  EXPECT_THAT(CoordinateFromProto(coordinate, mesh, "c"),
              StatusIs(kInvalid, StartsWith("c[1] is -1")));
}

TEST(Messages, PlacementsComeAndGo) {
  for (const Placement& placement :
       {Placement{}, Placement{Placement::Kind::kShard, 3, 1},
        Placement{Placement::Kind::kStridedShard, 1, 4}}) {
    v1::Placement proto;
    PlacementToProto(placement, proto);
    EXPECT_THAT(PlacementFromProto(proto, "p"), IsOkAndHolds(placement));
  }
}

TEST(Messages, PlacementsAreChecked) {
  for (const Refused& refused : std::vector<Refused>{
           {"", "p says neither"},
           {"shard { dim: -1 }", "p.shard.dim is -1"},
           {"shard { dim: 64 }", "p.shard.dim is 64"},
           {"strided_shard { dim: 64 split_factor: 1 }",
            "p.strided_shard.dim is 64"},
           {"strided_shard { }", "p.strided_shard.split_factor is 0"},
           {"strided_shard { split_factor: 1048577 }",
            "p.strided_shard.split_factor is 1048577"},
       }) {
    EXPECT_THAT(PlacementFromProto(Proto<v1::Placement>(refused.text), "p"),
                StatusIs(kInvalid, StartsWith(refused.error)));
  }
}

TEST(Messages, RulesHaveAPlacementForEachAxis) {
  const Mesh mesh{{{"a", 2}, {"b", 3}}};
  auto request = Proto<v1::ReshardRequest>(
      "placements { placements { replicate {} } "
      "placements { shard { dim: 1 } } }");
  ASSERT_OK_AND_ASSIGN(
      const std::vector<PlacementRule> rules,
      PlacementRulesFromProto(request.placements(), mesh, "placements"));
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].glob, "*");
  EXPECT_EQ(ToString(rules[0].placements), "R,S(1)");

  request.mutable_placements(0)->mutable_placements(1)->clear_kind();
  EXPECT_THAT(
      PlacementRulesFromProto(request.placements(), mesh, "placements"),
      StatusIs(kInvalid, StartsWith("placements[0].placements[1] says")));
  request.mutable_placements(0)->mutable_placements()->RemoveLast();
  EXPECT_THAT(PlacementRulesFromProto(request.placements(), mesh, "placements"),
              StatusIs(kInvalid, StartsWith("placements[0].placements has 1")));
}

TEST(Messages, SelectionsAreTakenAsTheyAre) {
  ASSERT_OK_AND_ASSIGN(
      const SelectionOptions options,
      SelectionFromProto(
          Proto<v1::Selection>("include: 'a*' exclude: 'b' "
                               "renames: 's/a/b/' casts: 'bf16'"),
          "selection"));
  EXPECT_THAT(options.include, ElementsAre("a*"));
  EXPECT_THAT(options.exclude, ElementsAre("b"));
  EXPECT_THAT(options.renames, ElementsAre("s/a/b/"));
  EXPECT_THAT(options.casts, ElementsAre("bf16"));
}

TEST(Messages, SelectionsAreBounded) {
  for (const Refused& refused : std::vector<Refused>{
           {"include: ['a', '']", "s.include[1] is empty"},
           {"exclude: 'a\\000'", "s.exclude[0] has a NUL"},
       }) {
    EXPECT_THAT(SelectionFromProto(Proto<v1::Selection>(refused.text), "s"),
                StatusIs(kInvalid, StartsWith(refused.error)));
  }
  v1::Selection selection;
  for (int i = 0; i < 101; ++i) selection.add_renames("s/a/b/");
  EXPECT_THAT(SelectionFromProto(selection, "s"),
              StatusIs(kInvalid, StartsWith("s.renames has 101 entries")));
  selection.Clear();
  for (int i = 0; i < 1001; ++i) selection.add_casts("bf16");
  EXPECT_THAT(SelectionFromProto(selection, "s"),
              StatusIs(kInvalid, StartsWith("s.casts has 1001 entries")));
  selection.Clear();
  selection.add_include(std::string(1025, 'a'));
  EXPECT_THAT(SelectionFromProto(selection, "s"),
              StatusIs(kInvalid, StartsWith("s.include[0] has 1025 bytes")));
}

TEST(Messages, SamplesAreAShare) {
  EXPECT_THAT(SamplePercentFromProto(0, "p"), IsOkAndHolds(100.0));
  EXPECT_THAT(SamplePercentFromProto(0.5, "p"), IsOkAndHolds(0.5));
  for (const double percent :
       {-1.0, 100.5, std::numeric_limits<double>::quiet_NaN(),
        std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(SamplePercentFromProto(percent, "p"),
                StatusIs(kInvalid, StartsWith("p is ")));
  }
}

CheckpointEntry TensorEntryOf(const std::string& fqn) {
  TensorEntry tensor;
  tensor.dtype = DType::kBFloat16;
  tensor.shape = {4, 3};
  tensor.boxes = {Box{{0, 0}, {2, 3}}, Box{{2, 0}, {2, 3}}};
  tensor.locations.resize(2);
  tensor.locations[0].item = {.file = 1, .offset = 7, .length = 12};
  tensor.locations[1].item = {.file = 0, .offset = 9, .length = 12};
  return {.fqn = fqn, .path = {}, .value = tensor};
}

TEST(Messages, TensorsSayWhereTheirChunksLie) {
  v1::Tensor proto;
  TensorToProto(TensorEntryOf("w"), {"a", "b"}, proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "name: \"w\" dtype: \"bfloat16\" shape: 4 shape: 3 num_bytes: 24 "
            "num_chunks: 2 chunks { box { offsets: 0 offsets: 0 sizes: 2 "
            "sizes: 3 } file: \"b\" offset: 7 length: 12 } chunks { box { "
            "offsets: 2 offsets: 0 sizes: 2 sizes: 3 } file: \"a\" offset: 9 "
            "length: 12 }");
  proto.Clear();
  TensorToProto(TensorEntryOf("w\xFF"), {}, proto);
  EXPECT_EQ(proto.name(), "w\xEF\xBF\xBD");
  EXPECT_EQ(proto.chunks_size(), 0);
}

TEST(Messages, ObjectsAreShownWhenTheyWereRead) {
  CheckpointEntry entry{.fqn = "lr", .path = {}, .value = ObjectEntry()};
  v1::Object proto;
  ObjectToProto(entry, /*with_text=*/true, proto);
  EXPECT_EQ(proto.text(), "");
  std::get<ObjectEntry>(entry.value).located = true;
  std::get<ObjectEntry>(entry.value).value = Value::Float(0.5);
  ObjectToProto(entry, /*with_text=*/false, proto);
  EXPECT_EQ(proto.text(), "");
  ObjectToProto(entry, /*with_text=*/true, proto);
  EXPECT_EQ(proto.name(), "lr");
  EXPECT_EQ(proto.text(), "0.5");
}

TEST(Messages, ReportsAreWholeAndBounded) {
  VerifyReport report;
  report.format = Format::kTorch;
  report.num_tensors = 1;
  report.num_items_checked = 2;
  report.findings.push_back(
      {.name = "w", .file = "f\xFF", .offset = 3, .problem = "torn"});
  v1::VerifyReport proto;
  VerifyReportToProto(report, proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "num_tensors: 1 findings { name: \"w\" file: \"f\\357\\277\\275\" "
            "offset: 3 problem: \"torn\" } num_findings: 1 format: "
            "FORMAT_TORCH num_items_checked: 2");
  report.findings.assign(20'000, report.findings[0]);
  proto.Clear();
  VerifyReportToProto(report, proto);
  EXPECT_EQ(proto.findings_size(), 10'000);
  EXPECT_EQ(proto.num_findings(), 20'000u);
  for (VerifyFinding& finding : report.findings) {
    finding.problem = std::string(2000, 'x');
  }
  proto.Clear();
  VerifyReportToProto(report, proto);
  EXPECT_LT(proto.ByteSizeLong(), 4u << 20);
  EXPECT_GT(proto.findings_size(), 1000);
}

TEST(Messages, TolerancesAreFiniteAndNotNegative) {
  v1::DiffRequest::Tolerance proto;
  proto.set_rtol(0.5);
  proto.set_nan_differs(true);
  const absl::StatusOr<Tolerance> tolerance = ToleranceFromProto(proto, "t");
  ASSERT_OK(tolerance);
  EXPECT_EQ(tolerance->atol, 0);
  EXPECT_EQ(tolerance->rtol, 0.5);
  EXPECT_FALSE(tolerance->equal_nan);
  for (const double wrong : {-1.0, std::nan(""), HUGE_VAL}) {
    proto.set_atol(wrong);
    EXPECT_THAT(
        ToleranceFromProto(proto, "t"),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("t.atol is")));
  }
}

TEST(Messages, DifferencesSayHowFar) {
  DiffReport report;
  report.num_tensors_equal = 4;
  DiffFinding& values = report.findings.emplace_back();
  values.kind = DiffFinding::Kind::kValues;
  values.name = "w";
  values.num_elements = 9;
  values.difference = {.num_different = 2,
                       .first_different = 5,
                       .max_abs = 0.5,
                       .max_rel = 0.25,
                       .max_ulp = 77};
  values.first_index = {1, 2};
  DiffFinding& shape = report.findings.emplace_back();
  shape.kind = DiffFinding::Kind::kShape;
  shape.name = "b";
  shape.in_a = "[1]";
  shape.in_b = "[2]";
  v1::DiffReport proto;
  DiffReportToProto(report, proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "num_tensors_equal: 4 findings { kind: KIND_VALUES name: \"w\" "
            "num_elements: 9 num_different: 2 max_abs_difference: 0.5 "
            "first_different: 5 max_ulp: 77 first_index: 1 first_index: 2 "
            "max_rel_difference: 0.25 } findings { kind: KIND_SHAPE "
            "name: \"b\" in_a: \"[1]\" in_b: \"[2]\" } num_findings: 2");
}

TEST(Messages, PlansAreWholeAndBounded) {
  ConvertPlan plan;
  plan.from = Format::kDcp;
  plan.to = Format::kSafetensors;
  plan.files = {{"a", 1}, {"b", 2}};
  plan.num_tensors = 3;
  plan.bytes_to_read = 4;
  plan.bytes_to_write = 5;
  plan.memory_bytes = 6;
  plan.dropped = {"lr"};
  v1::ConvertResult proto;
  ConvertPlanToProto(plan, proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "from: FORMAT_DCP to: FORMAT_SAFETENSORS files { name: \"a\" "
            "num_bytes: 1 } files { name: \"b\" num_bytes: 2 } num_tensors: 3 "
            "bytes_to_read: 4 bytes_to_write: 5 memory_bytes: 6 dropped: "
            "\"lr\" num_files: 2 num_dropped: 1");
  plan.files.assign(300'000, plan.files[0]);
  plan.dropped.assign(20'000, std::string(1000, 'x'));
  proto.Clear();
  ConvertPlanToProto(plan, proto);
  EXPECT_LT(proto.ByteSizeLong(), 7u << 20);
  EXPECT_EQ(proto.num_files(), 300'000u);
  EXPECT_EQ(proto.num_dropped(), 20'000u);
}

}  // namespace
}  // namespace dcp::server
