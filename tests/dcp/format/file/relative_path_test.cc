// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/file/relative_path.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;

TEST(RelativePath, AcceptsSubdirectories) {
  EXPECT_OK(CheckRelativePath("__0_0.distcp"));
  EXPECT_OK(CheckRelativePath("a/b..c/..d"));
  for (const char* path : {"", "/", "a/", "a//b", "./a", "a/..", "a/./b"}) {
    EXPECT_THAT(CheckRelativePath(path),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << path;
  }
}

}  // namespace
}  // namespace dcp
