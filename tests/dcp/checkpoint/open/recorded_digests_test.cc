// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/open/recorded_digests.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<ChunkDigest> Recorded(const std::string& path) {
  const auto checkpoint = OpenCheckpoint(path);
  EXPECT_OK(checkpoint);
  const auto digests = (*checkpoint)->ReadRecordedDigests();
  EXPECT_OK(digests);
  return *digests;
}

TEST(RecordedDigests, CountOnlyForTheSaveInTheirName) {
  const TempDir dir;
  DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  builder.AddTensor("w", DType::kUInt8, {1}, "x");
  builder.metadata().save_id = "id";
  const std::string path = builder.Write(dir, "c");
  const ChunkDigest digest{.file = "__0_0.distcp", .offset = 7, .length = 1};
  dir.WriteFile("c/.digests-other", WriteDigests({digest}));
  EXPECT_THAT(Recorded(path), IsEmpty());
  dir.WriteFile("c/.digests-id", WriteDigests({digest}));
  EXPECT_THAT(Recorded(path), ElementsAre(digest));
  dir.WriteFile("c/.digests-id", "torn");
  EXPECT_THAT((*OpenCheckpoint(path))->ReadRecordedDigests(),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(RecordedDigests, ASingleFileHasNone) {
  const TempDir dir;
  const std::string path = dir.WriteFile(
      "m.safetensors", SafetensorsBytes({{"a", DType::kUInt8, {1}, "x"}}));
  dir.WriteFile(".digests", "not of this file");
  EXPECT_THAT(Recorded(path), IsEmpty());
}

}  // namespace
}  // namespace dcp
