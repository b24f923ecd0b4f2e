// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_filter.h"

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::testing::HasSubstr;

absl::Time TimeOf(const std::string& text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error))
      << error;
  return time;
}

// FAILED, RESHARD, from /data/run-7/step-10 to /data/out.
Job SampleJob() {
  Job job;
  job.state = JobMetadata::FAILED;
  job.request.kind = JobMetadata::RESHARD;
  job.request.source = "/data/run-7/step-10";
  job.request.destination = "/data/out";
  job.request.memory_bytes = 4096;
  job.create_time = TimeOf("2026-01-31T12:00:00Z");
  job.start_time = TimeOf("2026-01-31T12:00:01.5Z");
  job.end_time = TimeOf("2026-01-31T12:01:00Z");
  job.num_restarts = 2;
  return job;
}

bool Matches(const std::string& text, const Job& job) {
  const absl::StatusOr<JobFilter> filter = JobFilter::Parse(text);
  EXPECT_OK(filter) << text;
  return filter.ok() && filter->Matches(job);
}

TEST(JobFilter, MatchesWhatItSays) {
  const Job job = SampleJob();
  for (const char* text : {
           "",
           "  ",
           "state = FAILED",
           "state=FAILED AND kind=RESHARD",
           "metadata.state = FAILED",
           "state != RUNNING",
           "done = true",
           "NOT done = false",
           "-state = RUNNING",
           "- state = RUNNING",
           "source = \"/data/run-7/step-10\"",
           "source = /data/run-7/*",
           "source = */step-10",
           "source = *run-7*",
           "source : 'run-7'",
           "source != /data/run-8/*",
           "destination : *",
           "create_time > \"2026-01-31T11:59:59Z\"",
           "create_time >= '2026-01-31T13:00:00+01:00'",
           "create_time = \"2026-01-31T12:00:00Z\"",
           "start_time < \"2026-01-31T12:00:02Z\"",
           "end_time : *",
           "num_restarts > 1",
           "num_restarts <= 2 AND memory_bytes = 4096",
           "(state = FAILED)",
           "((state = FAILED OR state = RUNNING) AND (kind = RESHARD))",
           "state = RUNNING OR state = FAILED",
           // OR binds closer.
           "state = FAILED OR state = RUNNING AND kind = RESHARD",
           "state = FAILED AND kind = VERIFY OR kind = RESHARD",
           "NOT (state = RUNNING OR kind = VERIFY)",
           "\tstate\n=\rFAILED ",
           "source != \"a \\\"b\\\" \\\\\"",
       }) {
    EXPECT_TRUE(Matches(text, job)) << text;
  }
  for (const char* text : {
           "state = RUNNING",
           "state = FAILED AND kind = VERIFY",
           // (FAILED OR RUNNING) AND VERIFY, not FAILED OR (RUNNING AND
           // VERIFY).
           "state = FAILED OR state = RUNNING AND kind = VERIFY",
           "NOT state = FAILED",
           "source = /data/run-7",
           "source : run-8",
           "create_time > \"2026-01-31T12:00:00Z\"",
           "num_restarts < 2",
           "done = false",
       }) {
    EXPECT_FALSE(Matches(text, job)) << text;
  }
}

TEST(JobFilter, OfATimeThatIsNotThereNothingIsTrue) {
  Job job = SampleJob();
  job.state = JobMetadata::PENDING;
  job.start_time = absl::InfinitePast();
  job.end_time = absl::InfinitePast();
  for (const char* text :
       {"start_time : *", "start_time < \"2026-01-31T12:00:00Z\"",
        "start_time != \"2026-01-31T12:00:00Z\"", "end_time : *",
        "end_time > \"2026-01-31T12:00:00Z\""}) {
    EXPECT_FALSE(Matches(text, job)) << text;
    EXPECT_TRUE(Matches(absl::StrCat("NOT ", text), job)) << text;
  }
  job.request.destination.clear();  // as in a Verify
  EXPECT_FALSE(Matches("destination : *", job));
}

struct Refused {
  const char* text;
  int column;
  const char* problem;
};

TEST(JobFilter, RefusesTheRestWithTheColumn) {
  for (const Refused& refused : std::vector<Refused>{
           {"state", 6, "the filter ends"},
           {"state =", 8, "a value is missing"},
           {"state = running", 9, "'running' is not a state"},
           {"kind = RUNNING", 8, "is not a kind"},
           {"a = b", 1, "'a' is not a field"},
           {"metadata.done = true", 1, "is not a field"},
           {"\"state\" = RUNNING", 1, "is not a field"},
           {"= RUNNING", 1, "is not a field"},
           {"state = RUNNING AND", 20, "is not a field"},
           {"state = RUNNING kind = VERIFY", 17, "expected AND, OR or the end"},
           {"state = RUNNING and kind = VERIFY", 17,
            "expected AND, OR or the end"},
           {"state > RUNNING", 7, "supports only = and !="},
           {"state : RUNNING", 7, "supports only = and !="},
           {"source < x", 8, "supports only =, != and :"},
           {"create_time : \"2026-01-31T12:00:00Z\"", 13, "only with *"},
           {"create_time > yesterday", 15, "is not a time"},
           {"create_time > \"2026-01-31\"", 15, "is not a time"},
           {"num_restarts = -1", 16, "is not a number"},
           {"num_restarts = 1.5", 16, "is not a number"},
           {"memory_bytes = 99999999999999999999", 16, "is not a number"},
           {"done = 1", 8, "true or false"},
           {"state = \"FAILED", 9, "not closed"},
           {"source = \"a\\", 10, "not closed"},
           {"(state = FAILED", 16, ") of column 1 is missing"},
           {"state = FAILED)", 15, "expected AND, OR or the end"},
           {"()", 2, "is not a field"},
           {"NOT NOT state = FAILED", 5, "is not a field"},
           {"NOT", 4, "is not a field"},
           {"state == FAILED", 8, "a value is missing"},
           {"state ~ FAILED", 7, "not allowed outside quotes"},
           {"state = FAILED, kind = VERIFY", 15, "not allowed outside"},
           {"\xFF", 1, "not allowed outside quotes"},
       }) {
    const absl::Status status = JobFilter::Parse(refused.text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << refused.text;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(absl::StrCat("filter, column ", refused.column, ": ")))
        << refused.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refused.problem))
        << refused.text;
    EXPECT_EQ(ErrorReasonName(status), "INVALID_FILTER");
    EXPECT_EQ(BlamedField(status), "filter");
    EXPECT_EQ(GetErrorInfo(status).metadata().at("column"),
              absl::StrCat(refused.column));
  }
}

std::string Nested(size_t depth) {
  return absl::StrCat(std::string(depth, '('), "state = FAILED",
                      std::string(depth, ')'));
}

std::string Many(size_t number) {
  std::string text = "done=true";
  for (size_t i = 1; i < number; ++i) absl::StrAppend(&text, " OR done=true");
  return text;
}

TEST(JobFilter, LengthDepthAndNumberAreBounded) {
  EXPECT_TRUE(Matches(Nested(kMaxFilterDepth), SampleJob()));
  EXPECT_THAT(JobFilter::Parse(Nested(kMaxFilterDepth + 1)).status().message(),
              HasSubstr("column 21: there are more than 20"));
  EXPECT_TRUE(Matches(Many(kMaxFilterComparisons), SampleJob()));
  EXPECT_THAT(
      JobFilter::Parse(Many(kMaxFilterComparisons + 1)).status().message(),
      HasSubstr("more than 50 comparisons"));
  EXPECT_THAT(JobFilter::Parse(std::string(1 << 20, '(')).status().message(),
              HasSubstr("column 1001: the filter has 1048576 bytes"));
  EXPECT_OK(JobFilter::Parse(std::string(kMaxFilterBytes, ' ')));
}

// Random filters match if and only if the same tree does, evaluated directly.
class RandomFilter {
 public:
  explicit RandomFilter(uint64_t seed) : random_(seed) {}

  std::pair<std::string, bool> Expression(const Job& job, int depth) {
    auto [text, value] = Factor(job, depth);
    for (uint64_t n = random_() % 2; n > 0; --n) {
      const auto [next, also] = Factor(job, depth);
      absl::StrAppend(&text, " AND ", next);
      value = value && also;
    }
    return {text, value};
  }

 private:
  std::pair<std::string, bool> Factor(const Job& job, int depth) {
    auto [text, value] = Term(job, depth);
    for (uint64_t n = random_() % 2; n > 0; --n) {
      const auto [next, also] = Term(job, depth);
      absl::StrAppend(&text, " OR ", next);
      value = value || also;
    }
    return {text, value};
  }

  std::pair<std::string, bool> Term(const Job& job, int depth) {
    const bool negated = random_() % 3 == 0;
    std::pair<std::string, bool> made;
    if (depth > 0 && random_() % 2 == 0) {
      made = Expression(job, depth - 1);
      made.first = absl::StrCat("(", made.first, ")");
    } else {
      const auto number = static_cast<uint32_t>(random_() % 4);
      made = random_() % 2 == 0
                 ? std::pair(absl::StrCat("num_restarts >= ", number),
                             job.num_restarts >= number)
                 : std::pair(std::string("state = FAILED"),
                             job.state == JobMetadata::FAILED);
    }
    if (!negated) return made;
    return {absl::StrCat(random_() % 2 == 0 ? "NOT " : "-", made.first),
            !made.second};
  }

  std::mt19937_64 random_;
};

TEST(JobFilter, MatchesAsItsTree) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Job job = SampleJob();
    job.num_restarts = static_cast<uint32_t>(seed % 4);
    job.state = seed % 3 == 0 ? JobMetadata::FAILED : JobMetadata::RUNNING;
    const auto [text, value] = RandomFilter(seed).Expression(job, 2);
    if (text.size() > kMaxFilterBytes) continue;
    EXPECT_EQ(Matches(text, job), value) << "seed " << seed << ": " << text;
  }
}

// Any text is a filter or an error.
TEST(JobFilter, NoBytesBreakIt) {
  const std::string whole =
      "NOT (state = FAILED OR source : \"a\\\"b\") AND -num_restarts >= 1";
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text = whole.substr(0, random() % (whole.size() + 1));
    for (int i = 0; i < 3 && !text.empty(); ++i) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const absl::StatusOr<JobFilter> filter = JobFilter::Parse(text);
    if (filter.ok()) {
      filter->Matches(SampleJob());
    } else {
      EXPECT_EQ(ErrorReasonName(filter.status()), "INVALID_FILTER") << text;
    }
  }
}

}  // namespace
}  // namespace dcp::server
