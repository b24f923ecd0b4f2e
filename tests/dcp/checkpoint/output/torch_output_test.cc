// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/output/torch_output.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

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
using ::dcp::testing::GetEntry;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;

// The names in the given order, all tensors in `source`.
std::vector<OutputEntry> OutputEntries(const Checkpoint& source,
                                       const std::vector<std::string>& names) {
  std::vector<OutputEntry> entries;
  for (const std::string& name : names) {
    const CheckpointEntry& entry = GetEntry(source, name);
    entries.push_back({.fqn = name,
                       .path = entry.path,
                       .tensor = entry.tensor(),
                       .dtype = entry.tensor()->dtype,
                       .object = nullptr});
  }
  return entries;
}

TEST(TorchOutput, IsOneArchiveNamedAfterTheFile) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> source,
      OpenCheckpoint(CopyGolden(dir, "torch-2.11/archive.pt")));
  ASSERT_OK_AND_ASSIGN(
      Output output,
      BuildTorchOutput(OutputEntries(*source, {"base", "scalar"}),
                       source->files(), "my.model.pt"));
  ASSERT_EQ(output.files.size(), 1u);
  EXPECT_EQ(output.files[0].layout.name(), "my.model.pt");
  EXPECT_EQ(output.payloads.size(), 2u);
  EXPECT_TRUE(output.needs_crcs);
  EXPECT_FALSE(output.needs_digests);
  EXPECT_TRUE(output.index_name.empty());
  EXPECT_THAT(output.files[0].literal(0, {}),
              ::testing::HasSubstr("my.model/data.pkl"));
}

TEST(TorchOutput, TiedTensorsShareAStorageUnlessTheirTypeDiffers) {
  const TempDir dir;
  ValueArena arena;
  const Value tensor = MakeTensor(arena, DType::kFloat32, {2}, false, "0");
  const Value root = arena.Dict({arena.Str("in"), tensor, arena.Str("out"),
                                 tensor, arena.Str("half"), tensor});
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> source,
      OpenCheckpoint(dir.WriteFile(
          "x.pt", TorchArchiveBytes(root, {std::string(8, 'x')}))));
  std::vector<OutputEntry> entries =
      OutputEntries(*source, {"in", "out", "half"});
  entries[2].dtype = DType::kBFloat16;
  ASSERT_OK_AND_ASSIGN(const Output output,
                       BuildTorchOutput(entries, source->files(), "y.pt"));
  EXPECT_EQ(output.payloads.size(), 2u);
}

}  // namespace
}  // namespace dcp
