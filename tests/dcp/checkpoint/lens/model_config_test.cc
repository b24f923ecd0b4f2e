// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/lens/model_config.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "dcp/io/file_system.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

class ModelConfigTest : public ::testing::Test {
 protected:
  ModelConfigTest() { std::filesystem::create_directory(source_); }

  const testing::TempDir dir_;
  const std::string source_ = dir_.Join("model");
  const std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
};

TEST_F(ModelConfigTest, PrefersTheConfigInTheSource) {
  EXPECT_THAT(FindModelConfig(*fs_, source_), IsOkAndHolds(""));
  ASSERT_OK(WriteFile(*fs_, dir_.Join("config.json"), "next"));
  EXPECT_THAT(FindModelConfig(*fs_, source_), IsOkAndHolds("next"));
  ASSERT_OK(WriteFile(*fs_, JoinPath(source_, "config.json"), "in"));
  EXPECT_THAT(FindModelConfig(*fs_, source_), IsOkAndHolds("in"));
}

TEST_F(ModelConfigTest, FindsTheConfigNextToASourceFile) {
  const std::string file = JoinPath(source_, "model.safetensors");
  ASSERT_OK(WriteFile(*fs_, file, "weights"));
  EXPECT_THAT(FindModelConfig(*fs_, file), IsOkAndHolds(""));
  ASSERT_OK(WriteFile(*fs_, JoinPath(source_, "config.json"), "{}"));
  EXPECT_THAT(FindModelConfig(*fs_, file), IsOkAndHolds("{}"));
}

TEST_F(ModelConfigTest, SkipsPathsThatAreNotFiles) {
  std::filesystem::create_directory(JoinPath(source_, "config.json"));
  ASSERT_OK(WriteFile(*fs_, dir_.Join("config.json"), "next"));
  EXPECT_THAT(FindModelConfig(*fs_, source_), IsOkAndHolds("next"));
}

TEST_F(ModelConfigTest, RefusesALargeConfig) {
  ASSERT_OK(WriteFile(*fs_, JoinPath(source_, "config.json"),
                      std::string(kMaxModelConfigBytes + 1, ' ')));
  EXPECT_THAT(FindModelConfig(*fs_, source_),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("model/config.json")));
}

}  // namespace
}  // namespace dcp
