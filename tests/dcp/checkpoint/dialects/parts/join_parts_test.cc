// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/parts/join_parts.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/formats/model_opener.h"
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
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

// A DCP model in a/, and a safetensors one in b/.
class JoinPartsTest : public ::testing::Test {
 protected:
  JoinPartsTest() {
    std::filesystem::copy(CopyGolden(dir_, "dialects/fsdp1/dcp_sharded_ws2"),
                          JoinPath(dir_.path(), "a"));
    std::filesystem::create_directory(JoinPath(dir_.path(), "b"));
    std::filesystem::copy(
        CopyGolden(dir_, "dialects/fsdp1/dcp_sharded_ws2.expected.safetensors"),
        JoinPath(dir_.path(), "b/model.safetensors"));
  }

  std::vector<PartToJoin> Parts(StatePath prefix) {
    std::vector<PartToJoin> parts(2);
    parts[0].folder = "a";
    parts[1].folder = "b";
    parts[1].prefix = std::move(prefix);
    absl::StatusOr<CheckpointParts> dcp = OpenDcp(
        Disk(), JoinPath(dir_.path(), "a"), kDcpMetadataName, OpenOptions());
    EXPECT_OK(dcp);
    parts[0].parts = *std::move(dcp);
    absl::StatusOr<CheckpointParts> model = OpenModel(
        Disk(), OneModelFile(JoinPath(dir_.path(), "b/model.safetensors")),
        OpenOptions());
    EXPECT_OK(model);
    parts[1].parts = *std::move(model);
    return parts;
  }

  const TempDir dir_;
};

TEST_F(JoinPartsTest, ShiftsFilesAndAddsPrefixes) {
  std::vector<PartToJoin> parts = Parts({PathElement("copy")});
  const size_t num_entries =
      parts[0].parts.entries.size() + parts[1].parts.entries.size();
  ASSERT_OK_AND_ASSIGN(const CheckpointParts whole,
                       JoinParts(dir_.path(), std::move(parts)));
  EXPECT_EQ(whole.format, Format::kDcp);
  EXPECT_EQ(whole.entries.size(), num_entries);
  EXPECT_EQ(whole.files->names(),
            (std::vector<std::string>{"a/__0_0.distcp", "a/__1_0.distcp",
                                      "b/model.safetensors"}));
  const CheckpointEntry& last = whole.entries.back();
  EXPECT_THAT(last.fqn, HasSubstr("copy."));
  EXPECT_EQ(last.tensor()->locations[0].item.file, 2);
  EXPECT_OK(whole.files->Get(2));
}

TEST_F(JoinPartsTest, RefusesANameInTwoParts) {
  EXPECT_THAT(JoinParts(dir_.path(), Parts({})),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("is in two parts of the checkpoint, in b")));
}

}  // namespace
}  // namespace dcp
