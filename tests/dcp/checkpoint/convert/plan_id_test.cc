// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/plan_id.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/convert/prepare_conversion.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/placement.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/testing/old_time.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::Disk;
using ::dcp::testing::kPairRules;
using ::dcp::testing::MappedPair;
using ::dcp::testing::RewriteWithOldTime;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::TempDir;

void SaveIdentifiedModel(FileSystem& fs, absl::string_view path, int64_t rows) {
  SampleState state;
  state.Add(SampleTensor("a.weight", DType::kFloat32, {rows, 5}, 1));
  state.Add(SampleTensor("b.weight", DType::kFloat32, {40, 30}, 1));
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs, path, state.state(), coordinator,
                 {.memory_bytes = kMinMemoryBytes}));
}

ConvertOptions Options() {
  ConvertOptions options;
  options.mesh = *ParseMesh("shard=2");
  options.memory_bytes = kMinMemoryBytes;
  return options;
}

class PlanIdTest : public ::testing::Test {
 protected:
  PlanIdTest() { SaveIdentifiedModel(fs_, "/model", 7); }

  std::string Id(const ConvertOptions& options,
                 absl::string_view src = "/model",
                 absl::string_view dst = "/out",
                 uint64_t piece_bytes = kPieceBytes) {
    absl::StatusOr<Conversion> conversion =
        PrepareShare(fs_, src, dst, options, piece_bytes);
    EXPECT_OK(conversion.status());
    return conversion->own.id;
  }

  SimStorage fs_;
};

TEST_F(PlanIdTest, IsTheSameForAllWorkers) {
  const std::string id = Id(Options());
  EXPECT_EQ(id.size(), 32u);
  ConvertOptions other = Options();
  other.memory_bytes = 4 * kMinMemoryBytes;
  other.num_lanes = 2;
  other.overwrite = true;
  other.writer = "somebody";
  EXPECT_EQ(Id(other, "/model", "/elsewhere"), id);
  ASSERT_OK(fs_.Rename("/model", "/moved"));
  EXPECT_EQ(Id(Options(), "/moved"), id);
}

TEST_F(PlanIdTest, DiffersWithWhateverChangesAFile) {
  const std::string id = Id(Options());
  EXPECT_NE(Id(Options(), "/model", "/out", kPieceBytes - 1), id);
  ConvertOptions options = Options();
  options.mesh = *ParseMesh("shard=3");
  EXPECT_NE(Id(options), id);
  options = Options();
  options.selection.casts = {"a*=bf16"};
  EXPECT_NE(Id(options), id);
  options = Options();
  options.selection.renames = {"s/a/c/"};
  EXPECT_NE(Id(options), id);
  options = Options();
  options.selection.exclude = {"a*"};
  EXPECT_NE(Id(options), id);
  options = Options();
  options.mesh.reset();
  options.to = Format::kSafetensors;
  const std::string safetensors = Id(options);
  EXPECT_NE(safetensors, id);
  options.metadata = {{"key", "value"}};
  EXPECT_NE(Id(options), safetensors);
  SaveIdentifiedModel(fs_, "/other", 8);
  EXPECT_NE(Id(Options(), "/other"), id);
}

TEST_F(PlanIdTest, DiffersWithWhatAMappingWasTold) {
  MappedPair().Save(fs_, "/pair");
  const auto id_with = [&](const MapSpec& spec) {
    ConvertOptions options = Options();
    options.open.map = std::make_shared<const MapSpec>(spec);
    return Id(options, "/pair");
  };
  const MapSpec spec = *MappedPair::Map();
  const std::string id = id_with(spec);
  EXPECT_EQ(id_with(*MappedPair::Map()), id);
  EXPECT_NE(Id(Options(), "/pair"), id);
  EXPECT_NE(id_with(*MappedPair::Map(absl::StrCat(kPairRules, "\n"))), id);
  MapSpec other = spec;
  other.options.config = "{}";
  EXPECT_NE(id_with(other), id);
  other = spec;
  other.options.settings = {{"extra", 1}};
  EXPECT_NE(id_with(other), id);
  other = spec;
  other.options.unmatched = MapOptions::Unmatched::kDrop;
  EXPECT_NE(id_with(other), id);
  other = spec;
  other.model_to = "model.";
  EXPECT_NE(id_with(other), id);
}

// Workers that start before and after would mix two states, and the file has no
// checksums that show it.
TEST_F(PlanIdTest, DiffersAfterARewriteWithTheOldSizeAndTime) {
  const TempDir dir;
  const auto bytes = [](absl::string_view payload) {
    return SafetensorsBytes({{.name = "w",
                              .dtype = DType::kUInt8,
                              .shape = {4},
                              .payload = std::string(payload)}});
  };
  const std::string path = dir.WriteFile("m.safetensors", bytes("abcd"));
  const auto id = [&] {
    absl::StatusOr<Conversion> conversion =
        PrepareShare(Disk(), path, dir.Join("out"), Options(), kPieceBytes);
    EXPECT_OK(conversion.status());
    return conversion->own.id;
  };
  const std::string before = id();
  EXPECT_EQ(id(), before);
  RewriteWithOldTime(path, bytes("abce"));
  EXPECT_NE(id(), before);
}

TEST_F(PlanIdTest, NamesTheDataFiles) {
  absl::StatusOr<Conversion> conversion =
      PrepareShare(fs_, "/model", "/out", Options(), kPieceBytes);
  ASSERT_OK(conversion.status());
  EXPECT_EQ(conversion->output.files[1].layout.name(),
            "__1_0." + conversion->own.id + ".distcp");
}

}  // namespace
}  // namespace dcp
