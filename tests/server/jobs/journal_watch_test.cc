// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/journal_watch.h"

#include <sys/stat.h>

#include <filesystem>
#include <memory>

#include "absl/synchronization/mutex.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

// What a watch has said last.
class Heard {
 public:
  void Set(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    status_ = status;
    ++num_;
  }
  // The `num`-th news, waited for.
  absl::Status News(int num) {
    absl::MutexLock lock(&mutex_);
    while (num_ < num) changed_.Wait(&mutex_);
    return status_;
  }
  void Signal() { changed_.SignalAll(); }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
  absl::Status status_;
  int num_ = 0;
};

TEST(JournalWatch, NoticesThatTheStateDirectoryWasRemovedAndCameBack) {
  SetLogSink([](LogSeverity, absl::string_view) {});
  const TempDir dir;
  auto journal = JobJournal::Open(dir.Join("state"));
  ASSERT_OK(journal);
  Heard heard;
  const auto watch = JournalWatch::Start(**journal, absl::Milliseconds(1),
                                         [&](const absl::Status& status) {
                                           heard.Set(status);
                                           heard.Signal();
                                         });
  ASSERT_OK(watch);
  EXPECT_OK(heard.News(1));
  std::filesystem::rename(dir.Join("state"), dir.Join("away"));
  EXPECT_THAT(heard.News(2), StatusIs(absl::StatusCode::kUnavailable,
                                      HasSubstr("restore the state")));
  std::filesystem::rename(dir.Join("away"), dir.Join("state"));
  EXPECT_OK(heard.News(3));
}

TEST(JournalWatch, AJobIsNotAddedToAJournalThatIsGone) {
  const TempDir dir;
  auto journal = JobJournal::Open(dir.Join("state"));
  ASSERT_OK(journal);
  Job job;
  job.id = "one";
  ASSERT_OK((*journal)->Add(job));
  std::filesystem::remove_all(dir.Join("state"));
  job.id = "two";
  EXPECT_THAT((*journal)->Add(job), StatusIs(absl::StatusCode::kUnavailable));
  dir.WriteFile("state/jobs.db", "another");
  EXPECT_THAT((*journal)->Add(job), StatusIs(absl::StatusCode::kUnavailable,
                                             HasSubstr("was replaced")));
}

}  // namespace
}  // namespace dcp::server
