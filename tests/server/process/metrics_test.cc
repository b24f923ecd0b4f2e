// SPDX-License-Identifier: Apache-2.0

#include "server/process/metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/transport/raw_connection.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

// The answer of an HTTP server on loopback.
std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(write(fd, request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return answer;
}

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

TEST(Metrics, GaugesAreAskedUntilTheirHandleIsGone) {
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

TEST(Metrics, RemovingWaitsForACallThatGoesOn) {
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

TEST(Metrics, ServesItsTextOverHttp) {
  Metrics metrics;
  metrics.CountJob("VERIFY", "FAILED");
  const std::shared_ptr<void> handle =
      metrics.AddGauge("tessera_streams", "", [] { return 7.0; });
  ASSERT_OK_AND_ASSIGN(const int port, metrics.Listen("127.0.0.1:0"));
  const std::string answer = Get(port, "/metrics");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("state=\"FAILED\"} 1\n"));
  EXPECT_THAT(answer, HasSubstr("tessera_streams 7\n"));
  EXPECT_THAT(Get(port, "/other"), HasSubstr("404"));
}

TEST(Metrics, ConnectionsThatSayNothingLeaveThemAlone) {
  Metrics metrics;
  ASSERT_OK_AND_ASSIGN(const int port, metrics.Listen("127.0.0.1:0"));
  const std::string address = absl::StrCat("127.0.0.1:", port);
  std::vector<std::unique_ptr<RawConnection>> idle;
  for (int i = 0; i < 8; ++i) {
    idle.push_back(std::make_unique<RawConnection>(address));
    ASSERT_TRUE(idle.back()->is_connected());
  }
  EXPECT_THAT(Get(port, "/metrics"), HasSubstr("200 OK"));
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

TEST(Metrics, WhatOnlyGoesUpIsACounter) {
  Metrics metrics;
  const auto handle =
      metrics.AddCounter("tessera_x_total", "X", [] { return 3; });
  EXPECT_THAT(metrics.Text(), HasSubstr("# TYPE tessera_x_total counter\n"
                                        "tessera_x_total 3\n"));
}

TEST(Metrics, APortInUseIsAnError) {
  Metrics first;
  ASSERT_OK_AND_ASSIGN(const int port, first.Listen("127.0.0.1:0"));
  Metrics second;
  const std::string address = absl::StrCat("127.0.0.1:", port);
  EXPECT_THAT(second.Listen(address),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address)));
}

}  // namespace
}  // namespace dcp::server
