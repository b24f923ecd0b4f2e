// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/inspection.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/dcp_convert/sample_entries.h"

namespace dcp::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

Inspection Sample(absl::Span<const CheckpointEntry> entries) {
  Inspection inspection = InspectEntries(entries, "");
  inspection.path = "run/step-3";
  inspection.properties = {{"version", "1.0.0"}};
  inspection.files = {{"__0_0.distcp", 150}, {"__1_0.distcp", std::nullopt}};
  return inspection;
}

TEST(Inspection, CountsInTheOrderOfTheIndex) {
  const std::vector<CheckpointEntry> entries = SampleEntries();
  const Inspection inspection = InspectEntries(entries, "");
  EXPECT_EQ(inspection.num_elements, 13u);
  EXPECT_EQ(inspection.num_bytes, 56u);
  ASSERT_THAT(inspection.dtypes, SizeIs(2));
  EXPECT_EQ(inspection.dtypes[0].dtype, DType::kFloat32);
  EXPECT_EQ(inspection.dtypes[0].num_bytes, 48u);
  EXPECT_EQ(inspection.dtypes[1].dtype, DType::kInt64);
  EXPECT_EQ(inspection.dtypes[1].num_tensors, 1u);
  ASSERT_THAT(inspection.tensors, SizeIs(2));
  EXPECT_EQ(inspection.tensors[0]->fqn, "w");
  EXPECT_EQ(inspection.objects[0]->fqn, "lr");
}

TEST(Inspection, CountsOnlyMatchingNames) {
  const std::vector<CheckpointEntry> entries = SampleEntries();
  const Inspection inspection = InspectEntries(entries, "[sl]*");
  EXPECT_THAT(inspection.tensors, SizeIs(1));
  EXPECT_THAT(inspection.objects, SizeIs(1));
  EXPECT_EQ(inspection.num_bytes, 8u);
}

TEST(RenderInspection, IsReadable) {
  const std::vector<CheckpointEntry> entries = SampleEntries();
  EXPECT_EQ(RenderInspection(Sample(entries), {}),
            "run/step-3\n"
            "  format     dcp\n"
            "  tensors    2 (13 elements, 56 B)\n"
            "  dtypes     float32 1 (48 B), int64 1 (8 B)\n"
            "  objects    2\n"
            "  version    1.0.0\n"
            "\n"
            "FILE             SIZE\n"
            "__0_0.distcp    150 B\n"
            "__1_0.distcp  missing\n"
            "\n"
            "TENSOR  DTYPE    SHAPE   SIZE  CHUNKS\n"
            "w       float32  [4, 3]  48 B  2 x Shard(0)\n"
            "step    int64    []       8 B  whole\n"
            "\n"
            "OBJECT  VALUE\n"
            "lr      0.5\n"
            "hidden  (not read)\n");
}

TEST(RenderInspection, ListsChunksOnRequest) {
  const std::vector<CheckpointEntry> entries = SampleEntries();
  EXPECT_THAT(RenderInspection(Sample(entries), {.chunks = true}),
              HasSubstr("TENSOR  CHUNK       FILE          OFFSET  LENGTH\n"
                        "w       [0:2, 0:3]  __0_0.distcp       0     100\n"
                        "w       [2:4, 0:3]  __1_0.distcp       0     200\n"
                        "step    []          __0_0.distcp     100      50\n"));
}

TEST(RenderInspection, SaysWhyObjectsAreNotShown) {
  const std::vector<CheckpointEntry> entries = SampleEntries();
  Inspection inspection = Sample(entries);
  inspection.objects_note = "Too many.";
  EXPECT_THAT(RenderInspection(inspection, {}),
              HasSubstr("hidden  (not read)\nToo many.\n"));
}

TEST(RenderInspection, SummarizesManyFiles) {
  Inspection inspection;
  for (int i = 0; i < 100; ++i) {
    inspection.files.push_back({absl::StrCat("f", i), 10});
  }
  const std::string text = RenderInspection(inspection, {});
  EXPECT_THAT(text, HasSubstr("f31         10 B\n(68 more)  680 B\n"));
  EXPECT_THAT(text, Not(HasSubstr("f32")));
}

// `num_layers` layers with two 4-byte tensors each, and "head".
std::vector<CheckpointEntry> Layers(int num_layers) {
  std::vector<CheckpointEntry> entries;
  const auto add = [&](std::string name) {
    TensorEntry tensor;
    tensor.shape = {1};
    tensor.boxes = {WholeBox(tensor.shape)};
    tensor.locations.resize(1);
    CheckpointEntry& entry = entries.emplace_back();
    entry.fqn = std::move(name);
    entry.value = std::move(tensor);
  };
  for (int i = 0; i < num_layers; ++i) {
    add(absl::StrCat("model.", i, ".weight"));
    add(absl::StrCat("model.", i, ".bias"));
  }
  add("head");
  return entries;
}

TEST(RenderInspection, SummarizesManyTensorsToFitAScreen) {
  const std::vector<CheckpointEntry> many = Layers(100);
  EXPECT_THAT(RenderInspection(InspectEntries(many, ""), {}),
              HasSubstr("TENSORS NAMED  NUMBER  ELEMENTS   SIZE\n"
                        "model.*           200       200  800 B\n"
                        "head                1         1    4 B\n"
                        "Tensors are grouped"));
  const std::vector<CheckpointEntry> few = Layers(10);
  EXPECT_THAT(RenderInspection(InspectEntries(few, ""), {}),
              HasSubstr("model.9.bias    float32  [1]"));
}

TEST(RenderInspection, SummarizesToTheRequestedDepth) {
  const std::vector<CheckpointEntry> entries = Layers(3);
  EXPECT_THAT(RenderInspection(InspectEntries(entries, ""), {.depth = 2}),
              HasSubstr("model.0.*           2         2   8 B\n"
                        "model.1.*           2         2   8 B\n"
                        "model.2.*           2         2   8 B\n"
                        "head                1         1   4 B\n"));
  EXPECT_THAT(
      RenderInspection(InspectEntries(entries, ""), {.depth = 2, .limit = 1}),
      HasSubstr("model.0.*           2         2   8 B\n"
                "(3 more)            5         5  20 B\n"));
}

TEST(RenderInspection, ListsAllOnRequest) {
  const std::vector<CheckpointEntry> entries = Layers(150);
  const std::string text =
      RenderInspection(InspectEntries(entries, ""), {.all = true});
  EXPECT_THAT(text, HasSubstr("model.149.bias"));
  EXPECT_THAT(text, Not(HasSubstr("are grouped")));
}

TEST(RenderInspection, LimitCountsHiddenNames) {
  const std::vector<CheckpointEntry> entries = Layers(150);
  const std::string text =
      RenderInspection(InspectEntries(entries, ""), {.limit = 1});
  EXPECT_THAT(text, HasSubstr("model.0.weight  float32  [1]        4 B"));
  EXPECT_THAT(text, HasSubstr("(300 more)                      1.20 kB\n"));
  EXPECT_THAT(text, Not(HasSubstr("model.0.bias")));
}

TEST(RenderInspection, EscapesNamesFromTheCheckpoint) {
  std::vector<CheckpointEntry> entries = SampleEntries();
  entries[0].fqn = "w\033]0;title\007";
  Inspection inspection = Sample(entries);
  inspection.properties = {{"k\n", "v\r"}};
  EXPECT_THAT(RenderInspection(inspection, {.chunks = true}),
              Not(HasSubstr("\033")));
  EXPECT_THAT(RenderInspection(inspection, {.chunks = true}),
              Not(HasSubstr("\r")));
}

}  // namespace
}  // namespace dcp::tools
