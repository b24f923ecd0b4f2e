// SPDX-License-Identifier: Apache-2.0
#include "server/access/root_watch.h"

#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

// Records the news from a watch.
class Heard {
 public:
  void Add(const WatchedRoot& root, const RootCondition& now) {
    absl::MutexLock lock(&mutex_);
    news_.emplace_back(root.number, now);
    changed_.SignalAll();
  }
  // Waits for the `index`-th news.
  std::pair<size_t, RootCondition> News(size_t index) {
    absl::MutexLock lock(&mutex_);
    while (news_.size() <= index) changed_.Wait(&mutex_);
    return news_[index];
  }
  size_t size() {
    absl::MutexLock lock(&mutex_);
    return news_.size();
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::vector<std::pair<size_t, RootCondition>> news_;
};

class RootWatchTest : public ::testing::Test {
 protected:
  RootWatchTest() : path_(dir_.Join("root")) {
    SetLogSink([](LogSeverity, absl::string_view) {});
    std::filesystem::create_directory(path_);
  }

  std::unique_ptr<RootWatch> Start(std::vector<WatchedRoot> roots,
                                   absl::Duration timeout) {
    auto watch = RootWatch::Start(
        std::move(roots),
        {.interval = absl::Milliseconds(1), .timeout = timeout},
        [this](const WatchedRoot& root, const RootCondition& now) {
          heard_.Add(root, now);
        });
    EXPECT_OK(watch);
    return *std::move(watch);
  }

  Root ThisRoot(bool writable = true) const {
    return {.path = path_, .writable = writable, .real_path = path_};
  }

  const TempDir dir_;
  const std::string path_;
  Heard heard_;
};

TEST_F(RootWatchTest, HealthyRootIsUpAndHasSpace) {
  const RootCondition now = LookAtRoot(ThisRoot(), /*was_mounted=*/false);
  EXPECT_OK(now.readable);
  EXPECT_OK(now.usable);
  EXPECT_GT(now.free_bytes, 0u);
}

TEST_F(RootWatchTest, MissingRootIsDown) {
  std::filesystem::remove(path_);
  EXPECT_THAT(LookAtRoot(ThisRoot(), false).readable,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  dir_.WriteFile("root", "");
  const RootCondition now = LookAtRoot(ThisRoot(), false);
  EXPECT_FALSE(now.readable.ok());
  EXPECT_FALSE(now.usable.ok());
  EXPECT_EQ(now.free_bytes, std::nullopt);
}

// Calls `body` as a user without root's right to all files.
void WithoutCapabilities(const std::function<void()>& body) {
  std::thread([&] {
    __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3,
                                       .pid = 0};
    __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
    ASSERT_EQ(syscall(SYS_capset, &header, none), 0);
    body();
  }).join();
}

TEST_F(RootWatchTest, UnwritableRootIsDownOnlyIfClientsMayWrite) {
  ASSERT_EQ(chmod(path_.c_str(), 0500), 0);
  WithoutCapabilities([&] {
    const RootCondition now = LookAtRoot(ThisRoot(), false);
    EXPECT_OK(now.readable);
    EXPECT_THAT(now.usable, StatusIs(absl::StatusCode::kPermissionDenied,
                                     HasSubstr(path_)));
    EXPECT_GT(now.free_bytes, 0u);
    EXPECT_OK(LookAtRoot(ThisRoot(/*writable=*/false), false).usable);
  });
}

TEST_F(RootWatchTest, UnreadableRootIsDown) {
  for (const mode_t mode : {0000, 0300, 0600}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    WithoutCapabilities([&] {
      EXPECT_THAT(LookAtRoot(ThisRoot(), false).readable,
                  StatusIs(absl::StatusCode::kPermissionDenied))
          << mode;
    });
  }
  chmod(path_.c_str(), 0700);
}

TEST_F(RootWatchTest, UnmountedRootIsDown) {
  EXPECT_TRUE(IsMountPoint("/proc"));
  EXPECT_FALSE(IsMountPoint(path_));
  EXPECT_FALSE(IsMountPoint(dir_.Join("none")));
  EXPECT_THAT(LookAtRoot(ThisRoot(), /*was_mounted=*/true).readable,
              StatusIs(kUnavailable, HasSubstr("mount it again")));
}

TEST_F(RootWatchTest, DoesNotWatchObjectStores) {
  const Client server("server", {{.path = "s3://bucket", .writable = true},
                                 ThisRoot(),
                                 {.path = "/proc", .real_path = "/proc"}});
  const std::vector<WatchedRoot> roots = DirectoryRoots(server);
  ASSERT_EQ(roots.size(), 2u);
  EXPECT_EQ(roots[0].number, 2u);
  EXPECT_EQ(roots[0].name, path_);
  EXPECT_OK(roots[0].look().usable);
  EXPECT_EQ(roots[1].number, 3u);
  EXPECT_OK(roots[1].look().usable);
}

TEST_F(RootWatchTest, ReportsARootThatGoesAndComesBack) {
  const auto watch =
      Start(DirectoryRoots(Client("server", {ThisRoot()})), absl::Hours(1));
  std::filesystem::rename(path_, dir_.Join("away"));
  EXPECT_FALSE(heard_.News(0).second.usable.ok());
  EXPECT_FALSE(watch->Condition(0).usable.ok());
  std::filesystem::rename(dir_.Join("away"), path_);
  EXPECT_OK(heard_.News(1).second.usable);
  EXPECT_EQ(heard_.News(1).first, 1u);
  EXPECT_OK(watch->Condition(0).readable);
}

TEST_F(RootWatchTest, HangingRootIsDownAndBlocksNoOther) {
  absl::Notification answers;
  const auto hang = [&] {
    answers.WaitForNotification();
    return RootCondition();
  };
  std::vector<WatchedRoot> roots =
      DirectoryRoots(Client("server", {ThisRoot()}));
  roots.push_back({.number = 2, .name = "/hung", .look = hang});
  const auto watch = Start(std::move(roots), absl::Milliseconds(10));
  const auto [number, now] = heard_.News(0);
  EXPECT_EQ(number, 2u);
  EXPECT_THAT(now.readable,
              StatusIs(kUnavailable, HasSubstr("/hung: the file system has not "
                                               "answered for 10ms")));
  std::filesystem::remove(path_);
  EXPECT_EQ(heard_.News(1).first, 1u);
  EXPECT_FALSE(watch->Condition(0).usable.ok());
  EXPECT_FALSE(watch->Condition(1).usable.ok());
  answers.Notify();
  EXPECT_EQ(heard_.News(2).first, 2u);
  EXPECT_OK(heard_.News(2).second.usable);
}

TEST_F(RootWatchTest, StopsWhileARootHangs) {
  absl::Notification begun;
  absl::Notification answers;
  const auto hang = [&] {
    begun.Notify();
    answers.WaitForNotification();
    return RootCondition{.readable = absl::UnavailableError("x"),
                         .usable = absl::UnavailableError("x"),
                         .free_bytes = std::nullopt};
  };
  const auto watch = Start({{.number = 1, .name = "/hung", .look = hang}},
                           absl::InfiniteDuration());
  begun.WaitForNotification();
  watch->Stop();
  answers.Notify();
  EXPECT_EQ(heard_.size(), 0u);
}

TEST_F(RootWatchTest, MetricsHaveALabelForEachRoot) {
  absl::Notification looked;
  std::vector<WatchedRoot> roots = {
      {.number = 1,
       .name = "/a",
       .look =
           [] {
             return RootCondition{
                 .readable = {}, .usable = {}, .free_bytes = 7};
           }},
      {.number = 2, .name = "/b", .look = [] {
         const absl::Status down = absl::UnavailableError("x");
         return RootCondition{
             .readable = down, .usable = down, .free_bytes = std::nullopt};
       }}};
  const auto watch = Start(std::move(roots), absl::Hours(1));
  EXPECT_EQ(heard_.News(0).first, 2u);
  while (!watch->Condition(0).free_bytes.has_value()) {
  }
  Metrics metrics;
  const auto handles = AddRootGauges(*watch, metrics);
  EXPECT_THAT(metrics.Text(),
              AllOf(HasSubstr("tessera_root_up{root=\"/a\"} 1\n"
                              "tessera_root_up{root=\"/b\"} 0\n"),
                    HasSubstr("tessera_root_free_bytes{root=\"/a\"} 7\n"),
                    Not(HasSubstr("tessera_root_free_bytes{root=\"/b\"}"))));
}

}  // namespace
}  // namespace dcp::server
