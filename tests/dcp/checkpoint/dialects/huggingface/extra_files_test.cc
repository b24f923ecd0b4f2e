// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/huggingface/extra_files.h"

#include <filesystem>
#include <string>
#include <vector>

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

class ExtraFilesTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::optional<PartToJoin>> Open(
      const std::vector<absl::string_view>& patterns) const {
    const absl::StatusOr<SourceDirectory> directory =
        ListDirectory(Disk(), path_);
    EXPECT_OK(directory);
    return OpenExtraFiles(*directory, patterns, OpenOptions(), {});
  }

  const TempDir dir_;
  const std::string path_ =
      CopyGolden(dir_, "dialects/accelerate/accelerate_fsdp2_full_ws2");
};

TEST_F(ExtraFilesTest, NamesEachFileByItsStem) {
  ASSERT_OK_AND_ASSIGN(const auto part,
                       Open({"scheduler.bin", "random_states_{rank}.pkl"}));
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->prefix, StatePath{PathElement("extra")});
  EXPECT_EQ(part->parts.files->names(),
            (std::vector<std::string>{"scheduler.bin", "random_states_0.pkl",
                                      "random_states_1.pkl"}));
  EXPECT_EQ(part->parts.entries[0].path[0], PathElement("scheduler"));
  EXPECT_EQ(part->parts.entries.back().path[0], PathElement("random_states"));
}

TEST_F(ExtraFilesTest, NumbersAreNotRanks) {
  for (const char* const name :
       {"custom_checkpoint_0.pkl", "custom_checkpoint_7.pkl"}) {
    std::filesystem::copy(JoinPath(path_, "scheduler.bin"),
                          JoinPath(path_, name));
  }
  ASSERT_OK_AND_ASSIGN(const auto part,
                       Open({"custom_checkpoint_{number}.pkl"}));
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->parts.entries[0].path[0], PathElement("custom_checkpoint_0"));
  EXPECT_EQ(part->parts.entries.back().path[0],
            PathElement("custom_checkpoint_7"));
}

TEST_F(ExtraFilesTest, IgnoresAbsentFiles) {
  ASSERT_OK_AND_ASSIGN(const auto part,
                       Open({"scaler.pt", "custom_checkpoint_{number}.pkl"}));
  EXPECT_FALSE(part.has_value());
}

TEST_F(ExtraFilesTest, RequiresFilesOfAllRanks) {
  std::filesystem::remove(JoinPath(path_, "random_states_0.pkl"));
  EXPECT_THAT(Open({"random_states_{rank}.pkl"}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("random_states_{rank}.pkl only 1 of 2")));
}

}  // namespace
}  // namespace dcp
