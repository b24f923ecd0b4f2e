// SPDX-License-Identifier: Apache-2.0

#include "server/access/state_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

using ::dcp::testing::kInvalid;

TEST(StateDir, IsAccessibleOnlyForThisUser) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const StateDir state,
                       StateDir::Open(dir.Join("state"), {}));
  EXPECT_EQ(state.path(),
            std::filesystem::canonical(dir.Join("state")).string());
  struct stat info;
  ASSERT_EQ(stat(state.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700);
}

TEST(StateDir, IsUsedByOneServerAtATime) {
  const TempDir dir;
  absl::StatusOr<StateDir> first = StateDir::Open(dir.path(), {});
  ASSERT_OK(first);
  std::optional<StateDir> held(*std::move(first));
  EXPECT_THAT(StateDir::Open(dir.path(), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("another server uses it")));
  held.reset();
  EXPECT_OK(StateDir::Open(dir.path(), {}));
}

TEST(StateDir, MayNotLieBelowARoot) {
  const TempDir dir;
  dir.WriteFile("data/x", "");
  ASSERT_EQ(symlink(dir.Join("data").c_str(), dir.Join("link").c_str()), 0);
  for (const char* state : {"data/state", "data", "link/state"}) {
    EXPECT_THAT(StateDir::Open(dir.Join(state), {{.path = dir.Join("data")}}),
                StatusIs(kInvalid, HasSubstr("below the root")))
        << state;
  }
  EXPECT_THAT(StateDir::Open(dir.path(), {{.path = "/"}}), StatusIs(kInvalid));
  EXPECT_OK(StateDir::Open(dir.Join("data-2"), {{.path = dir.Join("data")}}));
}

TEST(StateDir, CheckNeitherLocksNorCreates) {
  const TempDir dir;
  dir.WriteFile("data/x", "");
  dir.WriteFile("file", "");
  const std::vector<Root> roots = {{.path = dir.Join("data")}};
  ASSERT_OK_AND_ASSIGN(const StateDir held,
                       StateDir::Open(dir.Join("state"), roots));
  EXPECT_OK(StateDir::Check(dir.Join("state"), roots));
  EXPECT_OK(StateDir::Check(dir.Join("new"), roots));
  EXPECT_FALSE(std::filesystem::exists(dir.Join("new")));
  for (const char* wrong : {"data/new", "data", "file", "none/state"}) {
    EXPECT_THAT(StateDir::Check(dir.Join(wrong), roots), StatusIs(kInvalid))
        << wrong;
  }
}

TEST(StateDir, MustBeADirectoryWithAParent) {
  const TempDir dir;
  dir.WriteFile("file", "");
  EXPECT_THAT(StateDir::Open(dir.Join("none/state"), {}), StatusIs(kInvalid));
  EXPECT_THAT(StateDir::Open(dir.Join("file"), {}), StatusIs(kInvalid));
}

}  // namespace
}  // namespace dcp::server
