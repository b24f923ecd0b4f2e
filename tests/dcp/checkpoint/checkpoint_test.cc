#include "dcp/checkpoint/checkpoint.h"

#include <unistd.h>

#include <memory>
#include <string>

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
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

std::string OneTensor() {
  return SafetensorsBytes({{"w", DType::kFloat32, {1}, BytesOf<float>({1})}});
}

TEST(Checkpoint, FormatNamesRoundTrip) {
  for (const Format format :
       {Format::kDcp, Format::kSafetensors, Format::kTorch}) {
    EXPECT_THAT(ParseFormat(FormatName(format)), IsOkAndHolds(format));
  }
  EXPECT_THAT(ParseFormat("bin"), IsOkAndHolds(Format::kTorch));
  EXPECT_THAT(ParseFormat("onnx"), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("'onnx'")));
}

TEST(Checkpoint, FindsTheFormatOfWhatIsThere) {
  const TempDir dir;
  const auto format_of = [](const std::string& path) {
    const auto checkpoint = OpenCheckpoint(path);
    EXPECT_OK(checkpoint) << path;
    return (*checkpoint)->format();
  };
  EXPECT_EQ(format_of(CopyGolden(dir, "torch-2.11/sharded")), Format::kDcp);
  EXPECT_EQ(format_of(CopyGolden(dir, "torch-2.11/archive.pt")),
            Format::kTorch);
  EXPECT_EQ(format_of(CopyGolden(dir, "torch-2.11/legacy.pt")), Format::kTorch);
  EXPECT_EQ(format_of(CopyGolden(dir, "torch-2.11/hugging_face")),
            Format::kSafetensors);
  // The name does not matter where the bytes tell.
  EXPECT_EQ(format_of(dir.WriteFile("weights", OneTensor())),
            Format::kSafetensors);
}

TEST(Checkpoint, APathGivenByTheUserMayBeALink) {
  const TempDir dir;
  CopyGolden(dir, "torch-2.11/sharded");
  dir.WriteFile("blob", OneTensor());
  ASSERT_EQ(symlink("torch-2.11/sharded", dir.Join("latest").c_str()), 0);
  ASSERT_EQ(symlink("blob", dir.Join("model.safetensors").c_str()), 0);
  EXPECT_OK(OpenCheckpoint(dir.Join("latest")));
  EXPECT_OK(OpenCheckpoint(dir.Join("model.safetensors")));
}

TEST(Checkpoint, SaysWhyThereIsNone) {
  const TempDir dir;
  EXPECT_THAT(OpenCheckpoint(dir.Join("absent")),
              StatusIs(absl::StatusCode::kNotFound));
  dir.WriteFile("other/readme.txt", "");
  EXPECT_THAT(
      OpenCheckpoint(dir.Join("other")),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("neither .metadata")));
  dir.WriteFile("unfinished/__0_0.distcp", "");
  dir.WriteFile("unfinished/.metadata.tmp", "");
  EXPECT_THAT(
      OpenCheckpoint(dir.Join("unfinished")),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("an unfinished save")));
  EXPECT_THAT(OpenCheckpoint(dir.WriteFile("empty.pt", "")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("empty.pt")));
  EXPECT_THAT(
      OpenCheckpoint(dir.WriteFile("empty.safetensors", "")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("empty.safetensors")));
}

TEST(Checkpoint, FindsEntriesByName) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(CopyGolden(dir, "torch-2.11/sharded")));
  for (uint32_t i = 0; i < checkpoint->entries().size(); ++i) {
    EXPECT_EQ(checkpoint->Find(checkpoint->entries()[i].fqn), i);
  }
  EXPECT_EQ(checkpoint->Find("nothing"), std::nullopt);
}

TEST(Checkpoint, LocateFillsInOnlyWhatIsAsked) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(CopyGolden(dir, "torch-2.11/sharded")));
  const uint32_t first = 0;
  ASSERT_OK(checkpoint->Locate(absl::MakeConstSpan(&first, 1)));
  for (size_t i = 0; i < checkpoint->entries().size(); ++i) {
    const TensorEntry* tensor = checkpoint->entries()[i].tensor();
    if (tensor == nullptr) continue;
    for (const ChunkLocation& location : tensor->locations) {
      EXPECT_EQ(location.located, i == 0);
    }
  }
  ASSERT_OK(checkpoint->LocateAll());
  // What is located needs no file any more.
  ASSERT_EQ(unlink(dir.Join("torch-2.11/sharded/__0_0.distcp").c_str()), 0);
  EXPECT_OK(checkpoint->LocateAll());
}

}  // namespace
}  // namespace dcp
