// SPDX-License-Identifier: Apache-2.0
// Verifies safetensors headers and .metadata, which give the places of bytes.

#include <string>
#include <utility>

#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/verify/verify.h"
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
using ::testing::IsEmpty;
using ::testing::SizeIs;

VerifyReport VerifiedIndex(const std::string& path) {
  absl::StatusOr<VerifyReport> report = VerifyCheckpoint(Disk(), path, {});
  EXPECT_OK(report);
  return *std::move(report);
}

// Wrong names are as bad as wrong bytes.
TEST(Verify, FindsAFlippedBitInAHeaderOrAnIndex) {
  const TempDir dir;
  const std::string from = dir.WriteFile(
      "from.safetensors",
      testing::SafetensorsBytes({{"layer", DType::kInt16, {2}, "abcd"},
                                 {"other", DType::kUInt8, {3}, "xyz"}}));
  ConvertOptions to_dcp;
  to_dcp.to = Format::kDcp;
  ConvertOptions to_accelerate;
  to_accelerate.to_dialect = Dialect::kAccelerate;
  ASSERT_OK(ConvertCheckpoint(Disk(), from, dir.Join("m.safetensors"), {}));
  ASSERT_OK(ConvertCheckpoint(Disk(), from, dir.Join("d"), std::move(to_dcp)));
  ASSERT_OK(
      ConvertCheckpoint(Disk(), from, dir.Join("a"), std::move(to_accelerate)));
  const struct {
    std::string checkpoint;
    std::string folder;
    std::string file;
  } cases[] = {{"m.safetensors", "", "m.safetensors"},
               {"d", "d/", ".metadata"},
               {"a", "a/", "pytorch_model_fsdp_0/.metadata"}};
  for (const auto& [checkpoint, folder, file] : cases) {
    SCOPED_TRACE(file);
    const std::string path = dir.Join(checkpoint);
    const std::string name = folder + file;
    EXPECT_THAT(VerifiedIndex(path).findings, IsEmpty());
    std::string bytes = testing::ReadFile(dir.Join(name));
    bytes[bytes.find("layer")] ^= 1;
    dir.WriteFile(name, bytes);
    const VerifyReport damaged = VerifiedIndex(path);
    ASSERT_THAT(damaged.findings, SizeIs(1));
    EXPECT_EQ(damaged.findings[0].file, file);
    EXPECT_THAT(damaged.findings[0].problem, HasSubstr("is damaged"));
    EXPECT_EQ(damaged.num_items_unchecked, 0u);
    EXPECT_THAT(ConvertCheckpoint(Disk(), path, dir.Join("to.pt"), {}),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("damaged")));
    ConvertOptions unchecked;
    unchecked.verify = false;
    unchecked.overwrite = true;
    EXPECT_OK(ConvertCheckpoint(Disk(), path, dir.Join("to.pt"),
                                std::move(unchecked)));
  }
  EXPECT_THAT(testing::OpenCheckpoint(dir.Join("m.safetensors")),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("m.safetensors: the header is damaged")));
  ASSERT_OK_AND_ASSIGN(const auto index,
                       testing::OpenCheckpoint(dir.Join("d")));
  EXPECT_THAT(Load(Disk(), *index, {}, {.verify = true}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr(".metadata: the index is damaged")));
}

TEST(Verify, FindsAFlippedName) {
  const TempDir dir;
  const VerifyReport report =
      VerifiedIndex(CopyGolden(dir, "edges/flipped_name.safetensors"));
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_THAT(report.findings[0].problem, HasSubstr("the header is damaged"));
  EXPECT_EQ(report.num_digests_checked, 2u);
}

// A safetensors file with digests in the header, and one bit wrong.
TEST(Verify, OneSafetensorsFileHasDigestsInItsHeader) {
  const TempDir dir;
  const std::string from = dir.WriteFile(
      "from.safetensors",
      testing::SafetensorsBytes({{"empty", DType::kFloat32, {0}, ""},
                                 {"v", DType::kInt16, {2}, "abcd"},
                                 {"w", DType::kUInt8, {3}, "xyz"}},
                                {{"license", "mit"}}));
  const std::string path = dir.Join("m.safetensors");
  ASSERT_OK(ConvertCheckpoint(Disk(), from, path, {}));
  ASSERT_OK_AND_ASSIGN(const VerifyReport sound,
                       VerifyCheckpoint(Disk(), path, {}));
  EXPECT_TRUE(sound.findings.empty());
  EXPECT_EQ(sound.num_digests_checked, 2u);
  EXPECT_EQ(sound.num_items_unchecked, 0u);
  // Checkpoints written by other programs have none.
  ASSERT_OK_AND_ASSIGN(const VerifyReport plain,
                       VerifyCheckpoint(Disk(), from, {}));
  EXPECT_EQ(plain.num_items_unchecked, 2u);

  std::string bytes = testing::ReadFile(path);
  bytes.back() ^= 1;
  dir.WriteFile("m.safetensors", bytes);
  ASSERT_OK_AND_ASSIGN(const VerifyReport damaged,
                       VerifyCheckpoint(Disk(), path, {}));
  ASSERT_EQ(damaged.findings.size(), 1u);
  EXPECT_EQ(damaged.findings[0].name, "w");
  EXPECT_THAT(damaged.findings[0].problem, HasSubstr("digest of 3 bytes"));
  const std::string to = dir.Join("to.safetensors");
  EXPECT_THAT(ConvertCheckpoint(Disk(), path, to, {}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("w")));
}

}  // namespace
}  // namespace dcp
