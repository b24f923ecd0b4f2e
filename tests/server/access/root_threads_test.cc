// SPDX-License-Identifier: Apache-2.0

#include "server/access/root_threads.h"

#include <filesystem>
#include <string>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

class RootThreadsTest : public ::testing::Test {
 protected:
  RootThreadsTest()
      : top_(std::filesystem::canonical(dir_.path()).string()),
        access_(Load()),
        threads_(access_, {.max_waiting = 10}) {}

  // Roots a, b and b/inner.
  Access Load() {
    std::filesystem::create_directories(top_ + "/a");
    std::filesystem::create_directories(top_ + "/b/inner");
    return *Access::Load({{.path = top_ + "/a"},
                          {.path = top_ + "/b"},
                          {.path = top_ + "/b/inner"}},
                         "");
  }

  const TaskQueue* Of(const std::string& path) {
    return threads_.QueueFor(top_ + path).get();
  }

  const testing::TempDir dir_;
  const std::string top_;
  const Access access_;
  RootThreads threads_;
};

TEST_F(RootThreadsTest, RootsHaveSeparateThreads) {
  EXPECT_EQ(Of("/a"), Of("/a/x/y"));
  EXPECT_NE(Of("/a"), Of("/b"));
  EXPECT_NE(Of("/b"), Of("/b/inner/x"));
  EXPECT_EQ(Of("/b"), Of("/b/inners"));
  EXPECT_NE(Of("/a"), Of("/c"));
}

// A client's roots may have other names than the server's.
TEST_F(RootThreadsTest, ClientPathsLeadToServerRoots) {
  const Client client("me", {{.path = "/alias", .real_path = top_ + "/a/x"},
                             {.path = "/other", .real_path = top_ + "/b"}});
  EXPECT_EQ(threads_.QueueFor(client, "/alias//y").get(), Of("/a"));
  EXPECT_EQ(threads_.QueueFor(client, top_ + "/a/x/y").get(), Of("/a"));
  EXPECT_EQ(threads_.QueueFor(client, "/other/inner").get(), Of("/b"));
  for (const char* path : {"/none", "", "alias", "/alias/../y", "/"}) {
    EXPECT_EQ(threads_.QueueFor(client, path).get(), Of("/c")) << path;
  }
}

TEST_F(RootThreadsTest, ABlockedRootBlocksNoOther) {
  absl::Notification go_on;
  absl::Notification done;
  ASSERT_OK(threads_.QueueFor(top_ + "/a")->Post(kNoClient, [&] {
    go_on.WaitForNotification();
  }));
  ASSERT_OK(
      threads_.QueueFor(top_ + "/b")->Post(kNoClient, [&] { done.Notify(); }));
  done.WaitForNotification();
  go_on.Notify();
  threads_.Stop();  // the task still uses `go_on` while it wakes up
}

}  // namespace
}  // namespace dcp::server
