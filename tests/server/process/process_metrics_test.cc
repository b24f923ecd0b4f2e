// SPDX-License-Identifier: Apache-2.0

#include "server/process/process_metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/process/metrics.h"

namespace dcp::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

double MetricValue(const Metrics& metrics, const std::string& name) {
  const std::string text = metrics.Text();
  const std::string line_start = "\n" + name + " ";
  const size_t begin = text.find(line_start);
  EXPECT_NE(begin, std::string::npos) << name;
  const size_t value = begin + line_start.size();
  double number = -1;
  EXPECT_TRUE(absl::SimpleAtod(
      text.substr(value, text.find('\n', value) - value), &number));
  return number;
}

TEST(ProcessMetrics, DescribeThisProcess) {
  Metrics metrics;
  auto handles = AddProcessMetrics(metrics);
  EXPECT_GT(MetricValue(metrics, "process_cpu_seconds_total"), 0);
  EXPECT_GT(MetricValue(metrics, "process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(MetricValue(metrics, "process_start_time_seconds"), 1.7e9);
  const double before = MetricValue(metrics, "process_open_fds");
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(MetricValue(metrics, "process_open_fds"), before + 1);
  EXPECT_GT(MetricValue(metrics, "process_max_fds"), before);
  close(fd);
  handles.clear();
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("process_")));
}

}  // namespace
}  // namespace dcp::server
