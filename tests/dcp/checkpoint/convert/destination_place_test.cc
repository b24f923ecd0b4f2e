// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/destination_place.h"

#include <string>
#include <utility>

#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/checkpoint/verify/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ExpectSame;
using ::dcp::testing::SaveAll;
using ::dcp::testing::SimStorage;
using ::dcp::testing::SmallModel;
using ::dcp::testing::StatusIs;
using ::dcp::testing::WriteSmallSafetensors;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Replaces the destination.
absl::Status Convert(FileSystem& fs, absl::string_view src,
                     absl::string_view dst, Format to) {
  ConvertOptions options;
  options.to = to;
  options.overwrite = true;
  return ConvertCheckpoint(fs, src, dst, std::move(options)).status();
}

// A model in files of at most one tensor each.
void WriteShards(FileSystem& fs, absl::string_view src, absl::string_view dst) {
  ConvertOptions options;
  options.to = Format::kSafetensors;
  options.max_shard_bytes = 1;
  ASSERT_OK(ConvertCheckpoint(fs, src, dst, std::move(options)));
}

auto Refuses(absl::string_view a, absl::string_view b) {
  return StatusIs(absl::StatusCode::kFailedPrecondition,
                  AllOf(HasSubstr(std::string(a)), HasSubstr(std::string(b)),
                        HasSubstr("choose another")));
}

TEST(DestinationPlace, RefusesDataFilesAndIndicesOfDcp) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  SaveAll(fs, "/d", SmallModel());
  for (const std::string src : {"/a", "/d"}) {
    for (const std::string name :
         {"__0_0.distcp", "__7_0.distcp", ".metadata", "__0.metadata"}) {
      EXPECT_THAT(Convert(fs, src, "/d/" + name, Format::kTorch),
                  Refuses("/d", name));
    }
  }
  ExpectSame(fs, "/a", "/d");
}

TEST(DestinationPlace, RefusesOneFileOfAShardedModel) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  WriteShards(fs, "/a", "/m");
  const std::string shard = "/m/model-00001-of-00003.safetensors";
  for (const std::string src :
       {"/a", "/m", "/m/model.safetensors.index.json"}) {
    EXPECT_THAT(Convert(fs, src, shard, Format::kSafetensors),
                Refuses(shard, "/m"));
  }
  EXPECT_THAT(Convert(fs, shard, shard, Format::kSafetensors),
              Refuses("one of the 3 files of the checkpoint", "/m"));
  ExpectSame(fs, "/a", "/m");
}

TEST(DestinationPlace, RefusesAFolderOfTheSource) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  ConvertOptions options;
  options.to_dialect = Dialect::kAccelerate;
  ASSERT_OK(ConvertCheckpoint(fs, "/a", "/acc", std::move(options)));
  const std::string folder = "/acc/pytorch_model_fsdp_0";
  ASSERT_OK(fs.Stat(folder));
  EXPECT_THAT(Convert(fs, "/acc", folder, Format::kDcp),
              Refuses(folder, "/acc"));
  EXPECT_OK(Convert(fs, "/acc", "/acc-model", Format::kDcp));
}

// They are read as one model if nothing says otherwise, but are not one.
TEST(DestinationPlace, AllowsToReplaceAFileBesideOtherModels) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  ASSERT_OK(fs.MakeDirectory("/models"));
  WriteSmallSafetensors(fs, "/models/other.safetensors", "t", {});
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(Convert(fs, "/a", "/models/a.safetensors", Format::kSafetensors));
  }
}

TEST(DestinationPlace, AllowsToReplaceTheWholeSourceAndAnExport) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  SaveAll(fs, "/d", SmallModel());
  EXPECT_OK(Convert(fs, "/d", "/d", Format::kDcp));
  for (int i = 0; i < 2; ++i) {  // the second time the file is there
    EXPECT_OK(Convert(fs, "/d", "/d/model.safetensors", Format::kSafetensors));
    EXPECT_OK(Convert(fs, "/d", "/one.safetensors", Format::kSafetensors));
  }
  EXPECT_OK(Convert(fs, "/one.safetensors", "/one.safetensors",
                    Format::kSafetensors));
  ExpectSame(fs, "/a", "/one.safetensors");
  ExpectSame(fs, "/a", "/d");
}

}  // namespace
}  // namespace dcp
