// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/file_systems/default_file_system.h"

#include <stdlib.h>

#include <memory>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/kept_environment.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kInvalidArgument;
using ::absl::StatusCode::kUnimplemented;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

TEST(DefaultFileSystem, HasPathsOfThisMachine) {
  const testing::TempDir dir;
  const std::unique_ptr<FileSystem> fs = NewDefaultFileSystem();
  ASSERT_OK(WriteFile(*fs, dir.Join("f"), "text"));
  EXPECT_EQ(ReadFile(*fs, dir.Join("f"), 10, false).value(), "text");
}

TEST(DefaultFileSystem, NamesUnsupportedPaths) {
  const std::unique_ptr<FileSystem> fs = NewDefaultFileSystem();
  EXPECT_THAT(fs->Stat("gs://bucket/f").status(),
              StatusIs(kUnimplemented, HasSubstr("gs://bucket: needs the")));
  const testing::KeptEnvironment environment;
  setenv("AWS_ENDPOINT_URL", "nonsense", 1);
  EXPECT_THAT(fs->Stat("s3://bucket/f").status(),
              StatusIs(kInvalidArgument, HasSubstr("AWS_ENDPOINT_URL")));
}

}  // namespace
}  // namespace dcp
