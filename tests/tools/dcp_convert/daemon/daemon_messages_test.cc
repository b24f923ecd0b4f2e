// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/daemon/daemon_messages.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/mapping/application/mapping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tools/dcp_convert/options/command_line_parser.h"
#include "tools/dcp_convert/output/json_output.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace v1 = tessera::v1;

using ::dcp::testing::kDataLoss;

CommandLine Line(absl::string_view words) {
  absl::StatusOr<CommandLine> line = ParseCommandLine(
      std::vector<std::string>(absl::StrSplit(words, ' ')), "h:1");
  EXPECT_OK(line);
  return *std::move(line);
}

TEST(DaemonMessages, RequestsContainTheCommandLine) {
  const v1::ConvertRequest request = ConvertMessage(
      Line("convert /s /d --to dcp --rank 3 --mesh dp=2,tp=3 --place "
           "*.w=S(1),SS(0,2) --include a --exclude b --rename s/a/b/ --cast "
           "bf16 --max-shard-size 5GB --drop-non-tensors --overwrite --plan "
           "--max-memory 64MiB"));
  EXPECT_EQ(request.source().path(), "/s");
  EXPECT_EQ(request.source().rank(), 3);
  EXPECT_EQ(request.destination().path(), "/d");
  EXPECT_TRUE(request.destination().overwrite());
  EXPECT_EQ(request.format(), v1::FORMAT_DCP);
  ASSERT_EQ(request.mesh().axes_size(), 2);
  EXPECT_EQ(request.mesh().axes(1).name(), "tp");
  EXPECT_EQ(request.mesh().axes(1).size(), 3);
  ASSERT_EQ(request.placements_size(), 1);
  EXPECT_EQ(request.placements(0).glob(), "*.w");
  EXPECT_EQ(request.placements(0).placements(0).shard().dim(), 1);
  EXPECT_EQ(request.placements(0).placements(1).strided_shard().split_factor(),
            2);
  EXPECT_THAT(request.selection().include(), ElementsAre("a"));
  EXPECT_THAT(request.selection().exclude(), ElementsAre("b"));
  EXPECT_THAT(request.selection().renames(), ElementsAre("s/a/b/"));
  EXPECT_THAT(request.selection().casts(), ElementsAre("bf16"));
  EXPECT_EQ(request.max_shard_bytes(), 5'000'000'000);
  EXPECT_TRUE(request.drop_non_tensors());
  EXPECT_TRUE(request.options().validate_only());
  EXPECT_EQ(request.options().memory_bytes(), 64 << 20);
}

TEST(DaemonMessages, SendsMeshesAndThePlan) {
  CommandLine line = Line(
      "reshard /s /d --mesh dp=2,tp=2 --mesh experts:efsdp=2,ep=2 --place "
      "*.experts.*@experts=ep:S(0),efsdp:S(0) --tp-plan p --tp-axis tp");
  line.write.spec.tensor_parallel.emplace();
  ASSERT_OK(line.write.spec.tensor_parallel->plan.Add(
      {.pattern = "embed",
       .style = {.kind = ParallelStyle::Kind::kRowwise, .embedding = true}}));
  const v1::ReshardRequest request = ReshardMessage(line);
  ASSERT_EQ(request.other_meshes_size(), 1);
  EXPECT_EQ(request.other_meshes(0).name(), "experts");
  EXPECT_EQ(request.other_meshes(0).mesh().axes(1).name(), "ep");
  ASSERT_EQ(request.placements_size(), 1);
  EXPECT_EQ(request.placements(0).mesh(), "experts");
  EXPECT_EQ(request.placements(0).placements(0).strided_shard().split_factor(),
            2);
  EXPECT_EQ(request.tensor_parallel().axis(), "tp");
  ASSERT_EQ(request.tensor_parallel().entries_size(), 1);
  EXPECT_EQ(request.tensor_parallel().entries(0).pattern(), "embed");
  EXPECT_EQ(request.tensor_parallel().entries(0).style(), "rowwise");
  EXPECT_TRUE(request.tensor_parallel().entries(0).embedding());
}

TEST(DaemonMessages, MappingAppliesToTheFirstSource) {
  CommandLine line = Line("diff /a /b");
  absl::StatusOr<Mapping> mapping = ParseMapping(
      "tessera-mapping: 1\nname: m\nsides: {x: , y: }\n"
      "rules: [{x: a, y: b}]\n",
      "m.yaml");
  ASSERT_OK(mapping);
  MapSpec spec{.mapping = *std::move(mapping), .options = {}};
  spec.options.from = "x";
  spec.options.to = "y";
  line.map.spec = std::make_shared<const MapSpec>(std::move(spec));
  const v1::DiffRequest request = DiffMessage(line);
  EXPECT_THAT(request.a().map().yaml(), HasSubstr("rules: [{x: a, y: b}]"));
  EXPECT_EQ(request.a().map().yaml_name(), "m.yaml");
  EXPECT_EQ(request.a().map().from_side(), "x");
  EXPECT_EQ(request.a().map().to_side(), "y");
  EXPECT_FALSE(request.b().has_map());
  EXPECT_TRUE(ConvertMessage(line).source().has_map());
}

TEST(DaemonMessages, RequestsLosses) {
  for (const std::string& verb :
       {std::string("convert"), std::string("consolidate")}) {
    EXPECT_TRUE(ConvertMessage(Line(verb + " /s /d.pt --allow-losses"))
                    .options()
                    .allow_losses());
  }
  EXPECT_FALSE(ConvertMessage(Line("convert /s /d")).options().allow_losses());
}

TEST(DaemonMessages, RequestsChecks) {
  const CommandLine line =
      Line("convert /s /d --include a --part model --check --check-padding");
  EXPECT_TRUE(ConvertMessage(line).options().check_padding());
  EXPECT_FALSE(ConvertMessage(Line("convert /s /d")).options().check_padding());
  // The whole result is compared with the selected part of the source.
  const v1::DiffRequest request = DiffMessage(line);
  EXPECT_TRUE(request.tensors_only());
  EXPECT_THAT(request.selection_a().include(), ElementsAre("a"));
  EXPECT_EQ(request.selection_a().parts_size(), 1);
  EXPECT_EQ(request.selection_b().include_size(), 0);
  EXPECT_EQ(request.selection_b().parts_size(), 0);
}

TEST(DaemonMessages, UnsetOptionsAreLeftToTheServer) {
  const v1::ConvertRequest request = ConvertMessage(Line("convert /s /d"));
  EXPECT_FALSE(request.source().has_rank());
  EXPECT_EQ(request.format(), v1::FORMAT_UNSPECIFIED);
  EXPECT_FALSE(request.has_mesh());
  EXPECT_EQ(request.options().memory_bytes(), 0);
}

TEST(DaemonMessages, PyTorchVerbsSetTheFormat) {
  EXPECT_EQ(ConvertMessage(Line("dcp_to_torch /s /d")).format(),
            v1::FORMAT_TORCH);
  EXPECT_EQ(ConvertMessage(Line("torch_to_dcp /s /d")).format(),
            v1::FORMAT_DCP);
  EXPECT_EQ(ConsolidateMessage(Line("consolidate /s /d.pt")).format(),
            v1::FORMAT_TORCH);
}

TEST(DaemonMessages, DiffTakesPatternsForBothSidesUnlessNamesChange) {
  const v1::DiffRequest plain = DiffMessage(Line("diff /a /b --include x"));
  EXPECT_THAT(plain.selection_b().include(), ElementsAre("x"));
  const v1::DiffRequest renamed =
      DiffMessage(Line("diff /a /b --include x --rename s/x/y/"));
  EXPECT_EQ(renamed.selection_b().include_size(), 0);
}

TEST(DaemonMessages, DiffSendsTheTolerance) {
  EXPECT_FALSE(DiffMessage(Line("diff /a /b")).has_tolerance());
  const v1::DiffRequest close =
      DiffMessage(Line("diff /a /b --atol 0 --rtol 0.5 --no-equal-nan"));
  ASSERT_TRUE(close.has_tolerance());
  EXPECT_EQ(close.tolerance().rtol(), 0.5);
  EXPECT_TRUE(close.tolerance().nan_differs());
}

TEST(DaemonMessages, InspectionEqualsALocalOne) {
  v1::InspectResponse response;
  response.set_format(v1::FORMAT_DCP);
  response.set_num_tensors(1);
  response.set_num_objects(1);
  v1::Tensor& tensor = *response.add_tensors();
  tensor.set_name("w");
  tensor.set_dtype("float32");
  tensor.add_shape(4);
  for (int64_t i = 0; i < 2; ++i) {
    v1::Chunk& chunk = *tensor.add_chunks();
    chunk.mutable_box()->add_offsets(2 * i);
    chunk.mutable_box()->add_sizes(2);
    chunk.set_file(i == 0 ? "a" : "b");
  }
  v1::Object& object = *response.add_objects();
  object.set_name("lr");
  object.set_text("0.1");
  v1::InspectResponse::File& file = *response.add_files();
  file.set_name("b");
  file.set_num_bytes(7);
  ASSERT_OK_AND_ASSIGN(const OwnedInspection owned, InspectionFrom(response));
  const std::string text = RenderInspection(owned.inspection, {.chunks = true});
  EXPECT_THAT(text, HasSubstr("2 x Shard(0)"));
  EXPECT_THAT(text, HasSubstr("lr      0.1"));
  EXPECT_THAT(text, HasSubstr("missing"));
  EXPECT_THAT(InspectJson(owned.inspection, true),
              HasSubstr("\"value\":\"0.1\""));
  EXPECT_EQ(owned.num_entries, 2);
}

TEST(DaemonMessages, RefusesInvalidAnswers) {
  v1::InspectResponse response;
  response.set_format(v1::FORMAT_DCP);
  v1::Tensor& tensor = *response.add_tensors();
  tensor.set_dtype("float32");
  tensor.add_shape(-1);
  EXPECT_THAT(InspectionFrom(response), StatusIs(kDataLoss));
  tensor.set_shape(0, 1);
  tensor.add_chunks()->mutable_box()->add_sizes(1);
  EXPECT_THAT(InspectionFrom(response), StatusIs(kDataLoss));
}

}  // namespace
}  // namespace dcp::tools
