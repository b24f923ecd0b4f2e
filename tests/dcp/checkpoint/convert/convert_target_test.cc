// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/convert_target.h"

#include <string>
#include <utility>

#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/files/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SaveAll;
using ::dcp::testing::SimStorage;
using ::dcp::testing::SmallModel;
using ::dcp::testing::StatusIs;
using ::dcp::testing::WriteSmallSafetensors;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ConvertTarget, RefusesOptionsThatContradictEachOther) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  ConvertOptions mesh;
  mesh.to = Format::kTorch;
  mesh.mesh = *ParseMesh("x=2");
  EXPECT_THAT(ConvertCheckpoint(fs, "/a", "/b.pt", std::move(mesh)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ConvertOptions placements;
  placements.placements = {{"*", *ParsePlacements("S(0)")}};
  EXPECT_THAT(ConvertCheckpoint(fs, "/a", "/b", std::move(placements)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mesh")));
  ConvertOptions memory;
  memory.memory_bytes = kMinMemoryBytes - 1;
  EXPECT_THAT(
      ConvertCheckpoint(fs, "/a", "/b", std::move(memory)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("minimum")));
}

TEST(ConvertTarget, RefusesNamesOfFilesThatAreNotWritten) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  for (const std::string dst : {"/z.gguf", "/z.onnx", "/a.b/z.txt"}) {
    EXPECT_THAT(ConvertCheckpoint(fs, "/a", dst, {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(dst), HasSubstr(".safetensors, .pt"),
                               HasSubstr("the option to"))));
  }
  EXPECT_EQ(fs.List("/")->size(), 1u);
  for (const std::string dst :
       {"/llama-3.1-8b", "/run.5", "/model.v2", "/.hidden", "/c.dcp"}) {
    EXPECT_OK(ConvertCheckpoint(fs, "/a", dst, {}));
  }
  ConvertOptions options;
  options.to = Format::kDcp;
  EXPECT_OK(ConvertCheckpoint(fs, "/a", "/z.gguf", std::move(options)));
  ASSERT_OK(fs.MakeDirectory("/run.final"));
  EXPECT_OK(ConvertCheckpoint(fs, "/a", "/run.final", {}));
}

TEST(ConvertTarget, TheKeyOfDigestsIsReserved) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w", {});
  ConvertOptions options;
  options.metadata = {{"tessera_digests", "x"}};
  EXPECT_THAT(ConvertCheckpoint(fs, "/a.safetensors", "/b.safetensors",
                                std::move(options)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tessera_digests")));
}

TEST(FormatFromSuffix, KnowsTheEndingsOfFiles) {
  EXPECT_EQ(FormatFromSuffix("a/b.safetensors"), Format::kSafetensors);
  EXPECT_EQ(FormatFromSuffix("b.pt"), Format::kTorch);
  EXPECT_EQ(FormatFromSuffix("b.pth"), Format::kTorch);
  EXPECT_EQ(FormatFromSuffix("last.ckpt"), Format::kTorch);
  EXPECT_EQ(FormatFromSuffix("pytorch_model.bin"), Format::kTorch);
  EXPECT_EQ(FormatFromSuffix("a.pt/b"), std::nullopt);
  EXPECT_EQ(FormatFromSuffix("out"), std::nullopt);
}

}  // namespace
}  // namespace dcp
