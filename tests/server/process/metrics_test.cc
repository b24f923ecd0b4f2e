// SPDX-License-Identifier: Apache-2.0

#include "server/process/metrics.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/process/http_get.h"
#include "tests/server/transport/raw_connection.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, CountersSumByLabel) {
  Metrics metrics;
  metrics.CountRequest("Inspect", "OK");
  metrics.CountRequest("Inspect", "OK");
  metrics.CountRequest("Inspect", "NOT_FOUND");
  metrics.CountJob("RESHARD", "SUCCEEDED");
  metrics.CountBytes("read", 5);
  metrics.CountBytes("read", uint64_t{1} << 40);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("tessera_requests_total{code=\"OK\",method="
                              "\"Inspect\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("{code=\"NOT_FOUND\",method=\"Inspect\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tessera_jobs_total{kind=\"RESHARD\",state="
                              "\"SUCCEEDED\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("tessera_bytes_total{what=\"read\"} 1099511627781\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE tessera_bytes_total counter\n"));
}

TEST(Metrics, ReadsGaugesUntilTheHandleIsDestroyed) {
  Metrics metrics;
  double value = 3;
  std::shared_ptr<void> handle = metrics.AddGauge(
      "tessera_streams", "Streams that go on.", [&] { return value; });
  EXPECT_THAT(metrics.Text(), HasSubstr("\ntessera_streams 3\n"));
  value = 4;
  EXPECT_THAT(metrics.Text(), HasSubstr("\ntessera_streams 4\n"));
  handle.reset();
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("tessera_streams")));
}

TEST(Metrics, AHandleMayOutliveTheMetrics) {
  std::shared_ptr<void> handle;
  {
    Metrics metrics;
    handle = metrics.AddGauge("tessera_streams", "", [] { return 1.0; });
  }
  handle.reset();
}

TEST(Metrics, RemovingWaitsForACallInProgress) {
  Metrics metrics;
  std::atomic<int> num_calls = 0;
  auto value = std::make_unique<double>(1);
  std::shared_ptr<void> handle =
      metrics.AddGauge("tessera_streams", "", [&num_calls, &value] {
        ++num_calls;
        num_calls.notify_all();
        return *value;
      });
  std::jthread scraper([&](std::stop_token stop) {
    while (!stop.stop_requested()) metrics.Text();
  });
  num_calls.wait(0);
  handle.reset();
  value.reset();  // a later call would be found by ASan and TSan
  const int num_before = num_calls;
  metrics.Text();
  EXPECT_EQ(num_calls, num_before);
}

TEST(Metrics, GaugesCanHaveLabels) {
  Metrics metrics;
  const auto handle = metrics.AddGauges("tessera_x", "X", "root", [] {
    return std::vector<LabeledValue>{{.label = "/a", .value = 1},
                                     {.label = "/b \"", .value = 0}};
  });
  const auto empty = metrics.AddGauges(
      "tessera_y", "Y", "root", [] { return std::vector<LabeledValue>(); });
  EXPECT_THAT(metrics.Text(), HasSubstr("# TYPE tessera_x gauge\n"
                                        "tessera_x{root=\"/a\"} 1\n"
                                        "tessera_x{root=\"/b \\\"\"} 0\n"));
}

TEST(Metrics, ServesTextOverHttp) {
  Metrics metrics;
  metrics.CountJob("VERIFY", "FAILED");
  const std::shared_ptr<void> handle =
      metrics.AddGauge("tessera_streams", "", [] { return 7.0; });
  ASSERT_OK_AND_ASSIGN(const int port, metrics.Listen("127.0.0.1:0"));
  const std::string answer = HttpGet(port, "/metrics");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("state=\"FAILED\"} 1\n"));
  EXPECT_THAT(answer, HasSubstr("tessera_streams 7\n"));
  EXPECT_THAT(HttpGet(port, "/other"), HasSubstr("404"));
}

TEST(Metrics, SilentConnectionsDoNotBlockScrapers) {
  Metrics metrics;
  ASSERT_OK_AND_ASSIGN(const int port, metrics.Listen("127.0.0.1:0"));
  const std::string address = absl::StrCat("127.0.0.1:", port);
  std::vector<std::unique_ptr<RawConnection>> idle;
  for (int i = 0; i < 8; ++i) {
    idle.push_back(std::make_unique<RawConnection>(address));
    ASSERT_TRUE(idle.back()->is_connected());
  }
  EXPECT_THAT(HttpGet(port, "/metrics"), HasSubstr("200 OK"));
  for (const auto& connection : idle) EXPECT_TRUE(connection->WaitForEnd());
}

TEST(Metrics, TimesAreHistograms) {
  Metrics metrics;
  metrics.ObserveRequest("Inspect", absl::Milliseconds(3));
  metrics.ObserveRequest("Inspect", absl::Seconds(2));
  metrics.ObserveJob("VERIFY", absl::Hours(2));
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("tessera_request_seconds_bucket{method="
                              "\"Inspect\",le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tessera_request_seconds_bucket{method="
                              "\"Inspect\",le=\"5\"} 2\n"));
  EXPECT_THAT(text,
              HasSubstr("tessera_job_seconds_sum{kind=\"VERIFY\"} 7200\n"));
  EXPECT_THAT(text, HasSubstr("tessera_build_info{version=\""));
}

TEST(Metrics, AddsCounters) {
  Metrics metrics;
  const auto handle =
      metrics.AddCounter("tessera_x_total", "X", [] { return 3; });
  EXPECT_THAT(metrics.Text(), HasSubstr("# TYPE tessera_x_total counter\n"
                                        "tessera_x_total 3\n"));
}

TEST(Metrics, RefusesAPortInUse) {
  Metrics first;
  ASSERT_OK_AND_ASSIGN(const int port, first.Listen("127.0.0.1:0"));
  Metrics second;
  const std::string address = absl::StrCat("127.0.0.1:", port);
  EXPECT_THAT(second.Listen(address),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address)));
}

}  // namespace
}  // namespace dcp::server
