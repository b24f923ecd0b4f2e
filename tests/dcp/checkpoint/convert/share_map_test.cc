// SPDX-License-Identifier: Apache-2.0
// Workers that share a conversion through a mapping.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/share_fixture.h"
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::DataOf;
using ::dcp::testing::ExpectSame;
using ::dcp::testing::kModel;
using ::dcp::testing::kPairRules;
using ::dcp::testing::kPlace;
using ::dcp::testing::MappedPair;
using ::dcp::testing::Place;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::Tree;
using ::testing::AllOf;
using ::testing::HasSubstr;

ConvertOptions SharedOptions(const std::string& dst,
                             std::shared_ptr<const MapSpec> map) {
  ConvertOptions options;
  options.open.map = std::move(map);
  options.memory_bytes = kMinMemoryBytes;
  options.num_lanes = 1;
  if (dst == "dcp") options.mesh = *ParseMesh("shard=3");
  return options;
}

std::string PathOf(const std::string& dst) {
  return absl::StrCat(kPlace, "/", dst);
}

absl::StatusOr<ShareResult> Work(FileSystem& fs, const std::string& dst,
                                 std::shared_ptr<const MapSpec> map,
                                 const Share& share) {
  return ConvertShare(fs, kModel, PathOf(dst),
                      SharedOptions(dst, std::move(map)),
                      {.share = share, .piece_bytes = 200});
}

void PrepareShared(FileSystem& fs, const MappedPair& pair) {
  pair.Save(fs, kModel);
  ASSERT_OK(fs.MakeDirectory(kPlace));
}

class ShareMap : public ::testing::TestWithParam<std::string> {};

TEST_P(ShareMap, SharesWriteWhatOneProcessWrites) {
  const std::string& dst = GetParam();
  SimStorage plain;
  PrepareShared(plain, MappedPair());
  ASSERT_OK(ConvertCheckpoint(plain, kModel, PathOf(dst),
                              SharedOptions(dst, MappedPair::Map())));
  SimStorage one;
  PrepareShared(one, MappedPair());
  ASSERT_OK(Work(one, dst, MappedPair::Map(), {}));
  const Tree expected = Place(one);
  EXPECT_EQ(DataOf(expected), DataOf(Place(plain)));
  if (dst != "dcp") ExpectSame(one, Place(plain));
  for (const uint32_t count : {3u, 40u}) {
    SCOPED_TRACE(count);
    SimStorage fs;
    PrepareShared(fs, MappedPair());
    uint32_t num_written = 0;
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_OK_AND_ASSIGN(
          const ShareResult result,
          Work(fs, dst, MappedPair::Map(), {.index = i, .count = count}));
      num_written += result.num_written;
      EXPECT_EQ(result.is_complete, num_written == result.num_pieces);
      if (!result.has_committed) continue;
      EXPECT_TRUE(result.plan.check.checked);
      EXPECT_GT(result.plan.check.bytes_checked, 0u);
    }
    EXPECT_GE(num_written, 3u);
    ExpectSame(fs, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ShareMap,
                         ::testing::Values("dcp", "model.safetensors",
                                           "model.pt"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// Other rules, another config.json or other settings are other work, even for
// the same tensors.
TEST(ShareMapPlan, AWorkerWithOtherRulesConfigOrSettingsIsRefused) {
  SimStorage fs;
  PrepareShared(fs, MappedPair());
  ASSERT_OK(
      Work(fs, "dcp", MappedPair::Map(), {.index = 0, .count = 2}).status());
  const std::shared_ptr<const MapSpec> commented =
      MappedPair::Map(absl::StrCat(kPairRules, "# Another file.\n"));
  MapSpec configured = *MappedPair::Map();
  configured.options.config = "{}";
  MapSpec with_setting = *MappedPair::Map();
  with_setting.options.settings = {{"extra", 1}};
  for (const std::shared_ptr<const MapSpec>& other :
       {commented, std::make_shared<const MapSpec>(configured),
        std::make_shared<const MapSpec>(with_setting)}) {
    EXPECT_THAT(Work(fs, "dcp", other, {.index = 1, .count = 2}).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("another plan")));
  }
  ASSERT_OK_AND_ASSIGN(
      const ShareResult result,
      Work(fs, "dcp", MappedPair::Map(), {.index = 1, .count = 2}));
  EXPECT_TRUE(result.has_committed);
}

TEST(ShareMapTies, OneWorkerFindsWhatIsNotEqualAndNothingAppears) {
  for (const int64_t torn : {0, 50, 119}) {
    SCOPED_TRACE(torn);
    SimStorage fs;
    MappedPair pair;
    pair.TearHead(torn);
    PrepareShared(fs, pair);
    int num_found = 0;
    for (uint32_t i = 0; i < 3; ++i) {
      const absl::Status status =
          Work(fs, "dcp", MappedPair::Map(), {.index = i, .count = 3}).status();
      if (status.ok()) continue;
      ++num_found;
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("head"), HasSubstr("emb"))));
    }
    EXPECT_EQ(num_found, 1);
    EXPECT_FALSE(fs.Stat(PathOf("dcp/.metadata")).ok());
  }
}

}  // namespace
}  // namespace dcp
