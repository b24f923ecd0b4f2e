// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/log.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Log, ALineReachesTheSinkWholeWithItsSeverity) {
  std::vector<std::pair<LogSeverity, std::string>> lines;
  SetLogSink([&](LogSeverity severity, absl::string_view line) {
    lines.emplace_back(severity, std::string(line));
  });
  DCP_LOG(kInfo) << "event=save bytes=" << 12;
  DCP_LOG(kError) << "event=load";
  SetLogSink([](LogSeverity, absl::string_view) {});
  EXPECT_THAT(lines,
              ElementsAre(Pair(LogSeverity::kInfo, "event=save bytes=12"),
                          Pair(LogSeverity::kError, "event=load")));
}

TEST(Log, ThreadsDoNotMixTheirLines) {
  std::vector<std::string> lines;  // the sink's lock guards it
  SetLogSink(
      [&](LogSeverity, absl::string_view line) { lines.emplace_back(line); });
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 50; ++i) DCP_LOG(kInfo) << "a=" << 1 << " b=" << 2;
      });
    }
  }
  SetLogSink([](LogSeverity, absl::string_view) {});
  EXPECT_THAT(lines, ::testing::SizeIs(200));
  EXPECT_THAT(lines, ::testing::Each("a=1 b=2"));
}

}  // namespace
}  // namespace dcp
