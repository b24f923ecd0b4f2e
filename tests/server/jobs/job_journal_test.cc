// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_journal.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Job SampleJob(const std::string& id) {
  Job job;
  job.id = id;
  job.client = "someone";
  job.request = {.kind = JobMetadata::RESHARD,
                 .request_id = absl::StrCat("request of ", id),
                 .bytes = std::string("a\0b", 3),
                 .source = "/from",
                 .destination = "/to",
                 .memory_bytes = uint64_t{1} << 40};
  job.create_time = absl::FromUnixNanos(1'234'567'890'123'456'789);
  return job;
}

class JobJournalTest : public ::testing::Test {
 protected:
  void Open() {
    journal_.reset();
    auto journal = JobJournal::Open(state());
    ASSERT_OK(journal);
    journal_ = *std::move(journal);
  }

  std::string state() const { return dir_.Join("state"); }
  std::string path() const { return state() + "/jobs.db"; }

  void Execute(const std::string& sql) {
    journal_.reset();
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr),
              SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  const TempDir dir_;
  std::unique_ptr<JobJournal> journal_;
};

TEST_F(JobJournalTest, KeepsJobsInTheirOrder) {
  Open();
  EXPECT_THAT(*journal_->Jobs(), IsEmpty());
  Job first = SampleJob("one");
  Job second = SampleJob("two");
  ASSERT_OK(journal_->Add(first));
  ASSERT_OK(journal_->Add(second));
  EXPECT_LT(first.number, second.number);
  Open();
  ASSERT_OK_AND_ASSIGN(const std::vector<Job> jobs, journal_->Jobs());
  ASSERT_EQ(jobs.size(), 2u);
  const Job& job = jobs[1];
  EXPECT_EQ(job.number, second.number);
  EXPECT_EQ(job.id, "two");
  EXPECT_EQ(job.client, "someone");
  EXPECT_EQ(job.request.kind, JobMetadata::RESHARD);
  EXPECT_EQ(job.request.request_id, "request of two");
  EXPECT_EQ(job.request.bytes, "");
  EXPECT_EQ(job.request.source, "/from");
  EXPECT_EQ(job.request.destination, "/to");
  EXPECT_EQ(job.request.memory_bytes, uint64_t{1} << 40);
  EXPECT_EQ(job.state, JobMetadata::PENDING);
  EXPECT_EQ(job.create_time, second.create_time);
  EXPECT_EQ(job.start_time, absl::InfinitePast());
  EXPECT_EQ(job.end_time, absl::InfinitePast());
  EXPECT_FALSE(job.cancel_requested);
  EXPECT_THAT(journal_->RequestBytes(job.number),
              testing::IsOkAndHolds(std::string("a\0b", 3)));
}

TEST_F(JobJournalTest, KeepsWhatHappensToAJob) {
  Open();
  Job job = SampleJob("one");
  ASSERT_OK(journal_->Add(job));
  const absl::Time start = absl::FromUnixSeconds(2'000'000'000);
  ASSERT_OK(journal_->Start(job.number, start));
  ASSERT_OK(journal_->RequestCancel(job.number));
  ASSERT_OK(journal_->AppendRecord(job.number, "first"));
  ASSERT_OK(journal_->AppendRecord(job.number, std::string("sec\0nd", 6)));
  Open();
  EXPECT_THAT(*journal_->Records(job.number),
              ElementsAre("first", std::string("sec\0nd", 6)));
  ASSERT_OK(journal_->CountRestart(job.number));
  const std::vector<Job> running = *journal_->Jobs();
  EXPECT_EQ(running[0].state, JobMetadata::PENDING);
  EXPECT_EQ(running[0].start_time, start);
  EXPECT_EQ(running[0].num_restarts, 1u);
  EXPECT_TRUE(running[0].cancel_requested);
  ASSERT_OK(journal_->End(job.number, JobMetadata::FAILED,
                          start + absl::Seconds(1),
                          {.response = "", .error = "broken"}));
  Open();
  const std::vector<Job> ended = *journal_->Jobs();
  EXPECT_EQ(ended[0].state, JobMetadata::FAILED);
  EXPECT_EQ(ended[0].end_time, start + absl::Seconds(1));
  ASSERT_OK_AND_ASSIGN(const JobOutcome outcome, journal_->Outcome(job.number));
  EXPECT_EQ(outcome.error, "broken");
  EXPECT_EQ(outcome.response, "");
  EXPECT_THAT(*journal_->Records(job.number), IsEmpty());
}

TEST_F(JobJournalTest, IsForThisUserOnly) {
  const mode_t before = umask(0);
  Open();
  Job job = SampleJob("one");
  ASSERT_OK(journal_->Add(job));
  for (const auto& entry : std::filesystem::directory_iterator(state())) {
    struct stat info;
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600) << entry.path();
  }
  // An older server left the file like this.
  journal_.reset();
  ASSERT_EQ(chmod(path().c_str(), 0644), 0);
  Open();
  umask(before);
  struct stat info;
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
}

TEST_F(JobJournalTest, LostJobsAreNoticed) {
  Open();
  Job job = SampleJob("one");
  ASSERT_OK(journal_->Add(job));
  journal_.reset();
  const std::string kept = testing::ReadFile(path());
  Open();
  job = SampleJob("two");
  ASSERT_OK(journal_->Add(job));
  journal_.reset();
  const std::string newest = testing::ReadFile(path());
  for (const std::string& damaged : {std::string(), kept}) {
    dir_.WriteFile("state/jobs.db", damaged);
    EXPECT_THAT(JobJournal::Open(state()).status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("there were 2; restore it, or remove")));
  }
  dir_.WriteFile("state/jobs.db", newest);
  Open();
  EXPECT_EQ(journal_->Jobs()->size(), 2u);
  // Without these files, as the message advises.
  journal_.reset();
  dir_.WriteFile("state/jobs.db", "");
  std::filesystem::remove(dir_.Join("state/jobs.last"));
  Open();
  EXPECT_THAT(*journal_->Jobs(), IsEmpty());
}

TEST_F(JobJournalTest, NumbersAreNeverUsedAgain) {
  Open();
  Job first = SampleJob("one");
  ASSERT_OK(journal_->Add(first));
  ASSERT_OK(journal_->Remove(first.number));
  EXPECT_THAT(journal_->Outcome(first.number).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(journal_->RequestBytes(first.number).status(),
              StatusIs(absl::StatusCode::kNotFound));
  Open();
  Job second = SampleJob("one");
  ASSERT_OK(journal_->Add(second));
  EXPECT_GT(second.number, first.number);
}

TEST_F(JobJournalTest, IsOfOneServer) {
  Open();
  EXPECT_THAT(
      JobJournal::Open(state()).status(),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("another server")));
}

TEST_F(JobJournalTest, OfAnotherVersionIsRefused) {
  Open();
  Execute("PRAGMA user_version = 5");
  EXPECT_THAT(JobJournal::Open(state()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("has version 5, written by a newer server")));
  Execute("PRAGMA user_version = 3");
  EXPECT_THAT(JobJournal::Open(state()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("jobs, then remove")));
}

TEST_F(JobJournalTest, OfSomethingElseIsRefused) {
  std::filesystem::create_directory(state());
  Execute("CREATE TABLE notes (text TEXT)");
  EXPECT_THAT(
      JobJournal::Open(state()).status(),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("another program")));
}

TEST_F(JobJournalTest, ThatIsNoDatabaseIsRefused) {
  dir_.WriteFile("state/jobs.db", std::string(8192, 'x'));
  EXPECT_THAT(JobJournal::Open(state()).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("jobs.db")));
}

TEST_F(JobJournalTest, ThatIsDamagedIsRefusedOrRead) {
  Open();
  for (int i = 0; i < 200; ++i) {
    Job job = SampleJob(absl::StrCat("job ", i));
    job.request.bytes.assign(500, 'r');
    ASSERT_OK(journal_->Add(job));
  }
  journal_.reset();
  const std::string sound = testing::ReadFile(path());
  int num_refused = 0;
  for (size_t at = 0; at < sound.size(); at += 1021) {
    std::string spoilt = sound;
    for (size_t i = at; i < std::min(at + 64, spoilt.size()); ++i) {
      spoilt[i] = static_cast<char>(spoilt[i] ^ 0x5a);
    }
    std::ofstream(path(), std::ios::binary) << spoilt;
    const auto journal = JobJournal::Open(state());
    const absl::Status status =
        journal.ok() ? (*journal)->Jobs().status() : journal.status();
    num_refused += status.ok() ? 0 : 1;
  }
  EXPECT_GT(num_refused, 5);
}

TEST_F(JobJournalTest, AByteThatChangedIsFound) {
  Open();
  Job job = SampleJob("one");
  job.request.destination = "/the/destination";
  ASSERT_OK(journal_->Add(job));
  ASSERT_OK(journal_->Start(job.number, absl::FromUnixSeconds(2)));
  ASSERT_OK(journal_->AppendRecord(job.number, "the record"));
  journal_.reset();
  const std::string sound = testing::ReadFile(path());
  for (const char* value :
       {"/the/destination", "request of one", "the record"}) {
    const size_t at = sound.find(value);
    ASSERT_NE(at, std::string::npos) << value;
    std::string spoilt = sound;
    spoilt[at + 5] = static_cast<char>(spoilt[at + 5] ^ 1);
    std::ofstream(path(), std::ios::binary) << spoilt;
    EXPECT_THAT(JobJournal::Open(state()).status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("job 1 was changed since it was written")))
        << value;
  }
  std::ofstream(path(), std::ios::binary) << sound;
  Open();
  EXPECT_THAT(*journal_->Records(job.number), ElementsAre("the record"));
  ASSERT_OK(journal_->RequestCancel(job.number));
  ASSERT_OK(journal_->CountRestart(job.number));
  ASSERT_OK(journal_->End(job.number, JobMetadata::CANCELLED,
                          absl::FromUnixSeconds(3),
                          {.response = "", .error = "stopped"}));
  Open();
  EXPECT_EQ(journal_->Jobs()->size(), 1u);
}

TEST_F(JobJournalTest, RowsThatAreGoneAreNoticed) {
  Open();
  Job job = SampleJob("one");
  ASSERT_OK(journal_->Add(job));
  ASSERT_OK(journal_->AppendRecord(job.number, "a"));
  ASSERT_OK(journal_->AppendRecord(job.number, "b"));
  Job other = SampleJob("two");
  ASSERT_OK(journal_->Add(other));
  journal_.reset();
  const std::string sound = testing::ReadFile(path());
  // The triggers go too, because they would count.
  for (const char* sql :
       {"DROP TRIGGER job_removed; DELETE FROM jobs WHERE id = 'one'",
        "DROP TRIGGER record_removed; DELETE FROM records WHERE record = x'61'",
        "UPDATE totals SET num_jobs = 1", "DELETE FROM totals"}) {
    std::ofstream(path(), std::ios::binary) << sound;
    Execute(sql);
    EXPECT_THAT(JobJournal::Open(state()).status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("records of jobs, and there were")))
        << sql;
  }
  std::ofstream(path(), std::ios::binary) << sound;
  Open();
  ASSERT_OK(journal_->End(job.number, JobMetadata::SUCCEEDED,
                          absl::FromUnixSeconds(3), {}));
  ASSERT_OK(journal_->Remove(job.number));
  Open();
  EXPECT_EQ(journal_->Jobs()->size(), 1u);
}

TEST_F(JobJournalTest, WithAnUnknownStateIsRefused) {
  Open();
  Job job = SampleJob("one");
  job.state = static_cast<JobState>(99);
  ASSERT_OK(journal_->Add(job));
  Open();
  EXPECT_THAT(journal_->Jobs().status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("state 99")));
}

TEST_F(JobJournalTest, NeedsItsDirectory) {
  dir_.WriteFile("state", "a file");
  EXPECT_FALSE(JobJournal::Open(state()).ok());
  EXPECT_THAT(
      JobJournal::Open(dir_.Join("none/state")).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("none/state")));
}

}  // namespace
}  // namespace dcp::server
