// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/progress.h"

#include <sstream>

#include "dcp/io/object/retried_requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace dcp::tools {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kGigabyte = 1'000'000'000;

ProgressView HalfDone() {
  return {.label = "convert",
          .done_bytes = kGigabyte,
          .total_bytes = 2 * kGigabyte,
          .seconds = 2,
          .bytes_per_second = 5e8};
}

TEST(RateMeter, IsZeroWithoutTwoTimes) {
  RateMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  meter.Add(1, 100);
  EXPECT_EQ(meter.bytes_per_second(), 0);
}

TEST(RateMeter, ForgetsTheDistantPast) {
  RateMeter meter;
  meter.Add(0, 0);
  meter.Add(1, 1000);
  EXPECT_EQ(meter.bytes_per_second(), 1000);
  // A two-minute stall, seen every tenth of a second, then 10 per second.
  for (int i = 10; i <= 1200; ++i) meter.Add(i * 0.1, 1000);
  EXPECT_EQ(meter.bytes_per_second(), 0);
  for (int i = 1; i <= 200; ++i) {
    meter.Add(120 + i, 1000 + static_cast<uint64_t>(i) * 10);
  }
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 10);
}

TEST(ProgressView, FractionStaysInBounds) {
  ProgressView view;
  EXPECT_EQ(view.fraction(), 1);
  view.total_bytes = 10;
  EXPECT_EQ(view.fraction(), 0);
  EXPECT_EQ(view.eta_seconds(), std::nullopt);
  view.done_bytes = 20;
  EXPECT_EQ(view.fraction(), 1);
  EXPECT_EQ(view.eta_seconds(), 0);
}

TEST(RenderBar, ShowsShareBytesRateAndEta) {
  EXPECT_EQ(RenderBar(HalfDone(), 76),
            "convert [===========>          ]  50%  1.00 GB/2.00 GB  500 MB/s"
            "  ETA 2.00 s");
}

TEST(RenderBar, FitsTheTerminal) {
  for (int width = 0; width < 200; ++width) {
    EXPECT_LE(RenderBar(HalfDone(), width).size(), static_cast<size_t>(width));
  }
  EXPECT_THAT(RenderBar(HalfDone(), 60), Not(HasSubstr("[")));
}

TEST(RenderBar, IsFullAtTheEnd) {
  ProgressView view = HalfDone();
  view.done_bytes = view.total_bytes;
  EXPECT_THAT(RenderBar(view, 80),
              AllOf(HasSubstr("==]"), HasSubstr("100%"), HasSubstr("0.00 s")));
}

TEST(RenderLine, ShowsTheRemainingTime) {
  EXPECT_EQ(RenderLine(HalfDone()),
            "convert: 50%, 1.00 GB of 2.00 GB, 500 MB/s, 2.00 s left\n");
}

TEST(RenderJson, IsOneObjectOnOneLine) {
  const std::string text = RenderJson(HalfDone());
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_EQ(nlohmann::json::parse(text),
            nlohmann::json({{"event", "progress"},
                            {"verb", "convert"},
                            {"done_bytes", kGigabyte},
                            {"total_bytes", 2 * kGigabyte},
                            {"seconds", 2.0},
                            {"bytes_per_second", 500000000},
                            {"eta_seconds", 2.0},
                            {"requests_retried", 0}}));
  ProgressView stalled = HalfDone();
  stalled.bytes_per_second = 0;
  EXPECT_TRUE(
      nlohmann::json::parse(RenderJson(stalled))["eta_seconds"].is_null());
}

TEST(ProgressPrinter, BarAppearsLateAndIsCleared) {
  ProgressPrinter printer({.label = "convert", .terminal = true});
  printer.Begin(100);
  EXPECT_EQ(printer.Tick(0, 0), "");
  EXPECT_EQ(printer.Tick(0.2, 10), "");
  EXPECT_THAT(printer.Tick(0.4, 50),
              AllOf(StartsWith("\r\033[Kconvert"), HasSubstr(" 50%")));
  EXPECT_EQ(printer.Tick(0.45, 60), "");
  EXPECT_THAT(printer.Tick(0.55, 70), HasSubstr(" 70%"));
  EXPECT_EQ(printer.Finish(0.6, 100), "\r\033[K");
}

TEST(ProgressPrinter, AutoIsSilentForShortWork) {
  for (const bool terminal : {true, false}) {
    ProgressPrinter printer({.label = "x", .terminal = terminal});
    printer.Begin(100);
    EXPECT_EQ(printer.Tick(0, 0), "");
    EXPECT_EQ(printer.Tick(0.2, 100), "");
    EXPECT_EQ(printer.Finish(0.2, 100), "");
  }
}

TEST(ProgressPrinter, AutoWithoutTerminalPrintsLinesAtIntervals) {
  ProgressPrinter printer({.label = "x"});
  printer.Begin(100);
  EXPECT_EQ(printer.Tick(4.9, 10), "");
  EXPECT_THAT(printer.Tick(5.0, 20), StartsWith("x: 20%"));
  EXPECT_EQ(printer.Tick(9.9, 30), "");
  EXPECT_THAT(printer.Tick(10.0, 40), EndsWith("left\n"));
  EXPECT_EQ(printer.Finish(10.1, 100), "");
}

TEST(ProgressPrinter, PlainEndsWithALineAlsoOnATerminal) {
  ProgressPrinter printer(
      {.label = "x", .mode = ProgressMode::kPlain, .terminal = true});
  printer.Begin(100);
  EXPECT_EQ(printer.Tick(1, 10), "");
  EXPECT_EQ(printer.Finish(2, 100),
            "x: 100%, 100 B of 100 B, 50 B/s, 0.00 s left\n");
}

TEST(ProgressPrinter, JsonReportsBeginAndEnd) {
  ProgressPrinter printer({.label = "x", .mode = ProgressMode::kJson});
  printer.Begin(100);
  EXPECT_THAT(printer.Tick(0, 0), HasSubstr("\"done_bytes\":0,"));
  EXPECT_EQ(printer.Tick(0.5, 10), "");
  EXPECT_THAT(printer.Tick(1, 20), HasSubstr("\"done_bytes\":20,"));
  EXPECT_THAT(printer.Finish(1.5, 100), HasSubstr("\"done_bytes\":100,"));
}

TEST(ProgressPrinter, ShowsPreparationProgress) {
  ProgressPrinter printer({.label = "verify", .mode = ProgressMode::kPlain});
  EXPECT_EQ(printer.Prepare(0.9, {}), "");
  EXPECT_EQ(printer.Prepare(1.0, {}), "verify: reading the index\n");
  EXPECT_EQ(printer.Prepare(5.9, {}), "");
  EXPECT_EQ(
      printer.Prepare(6.0, {.num_items = 1280000, .num_items_located = 576000}),
      "verify: looking into 1,280,000 items: 45%\n");
  EXPECT_EQ(printer.Prepare(11, {.num_items = 7, .num_items_located = 7}),
            "verify: planning\n");
  printer.Begin(100);
  EXPECT_THAT(printer.Tick(11.1, 0), StartsWith("verify: 0%"));
}

TEST(ProgressPrinter, BarReplacesPhases) {
  ProgressPrinter printer({.label = "diff", .terminal = true, .width = 20});
  EXPECT_EQ(printer.Prepare(1, {.on_server = true}),
            "\r\033[Kdiff: waiting for t");
  EXPECT_EQ(printer.Clear(), "\r\033[K");
  printer.Begin(100);
  EXPECT_THAT(printer.Tick(1.1, 50), StartsWith("\r\033[Kdiff  50%"));
}

TEST(ProgressPrinter, JsonHasPhaseEvents) {
  ProgressPrinter printer({.label = "diff", .mode = ProgressMode::kJson});
  const nlohmann::json event = nlohmann::json::parse(
      printer.Prepare(1, {.num_items = 4, .num_items_located = 1}));
  EXPECT_EQ(event, nlohmann::json({{"event", "preparation"},
                                   {"verb", "diff"},
                                   {"phase", "items"},
                                   {"items_done", 1},
                                   {"items_total", 4},
                                   {"seconds", 1.0},
                                   {"requests_retried", 0}}));
}

TEST(ProgressPrinter, ShowsRetriedRequests) {
  ProgressPrinter plain({.label = "verify", .mode = ProgressMode::kPlain});
  EXPECT_EQ(plain.Prepare(1, {.num_retried = 1}),
            "verify: reading the index, 1 request to a store is tried again\n");
  plain.Begin(100);
  EXPECT_THAT(plain.Tick(10, 50, 2),
              EndsWith(" left, 2 requests to a store are tried again\n"));
  EXPECT_THAT(plain.Tick(20, 50, 0), EndsWith(" left\n"));
  ProgressPrinter bar({.label = "verify", .terminal = true});
  bar.Begin(100);
  EXPECT_THAT(bar.Tick(1, 50, 2), EndsWith("  2 retried"));
  ProgressPrinter json({.label = "verify", .mode = ProgressMode::kJson});
  json.Begin(100);
  EXPECT_EQ(nlohmann::json::parse(json.Tick(1, 50, 2))["requests_retried"], 2);
}

TEST(ProgressPrinter, NonePrintsNothing) {
  ProgressPrinter printer({.label = "x", .mode = ProgressMode::kNone});
  printer.Begin(100);
  EXPECT_EQ(printer.Tick(100, 10), "");
  EXPECT_EQ(printer.Finish(100, 100), "");
}

TEST(ProgressDisplay, PrintsFirstAndLastFromTheStats) {
  std::ostringstream results;
  std::ostringstream text;
  TransferStats stats;
  ProgressDisplay display({.out = results, .err = text}, "convert",
                          ProgressMode::kJson,
                          ProgressDisplay::Counting::kWrites, stats, nullptr);
  display.Start(100);
  stats.bytes_written = 100;
  stats.bytes_read = 7;
  display.Finish();
  display.Finish();
  std::istringstream lines(text.str());
  std::string first;
  std::string last;
  std::getline(lines, first);
  for (std::string line; std::getline(lines, line);) last = line;
  EXPECT_EQ(nlohmann::json::parse(first)["done_bytes"], 0);
  EXPECT_EQ(nlohmann::json::parse(last)["done_bytes"], 100);
  EXPECT_EQ(results.str(), "");
}

TEST(ProgressDisplay, CountsRequestsThatStoresRetry) {
  std::ostringstream text;
  TransferStats stats;
  {
    const RetriedRequest retried;
    ProgressDisplay display({.out = text, .err = text}, "convert",
                            ProgressMode::kJson,
                            ProgressDisplay::Counting::kReads, stats, nullptr);
    display.Start(100);
  }
  EXPECT_THAT(text.str(), HasSubstr("\"requests_retried\":1"));
}

TEST(ProgressDisplay, EndsWithoutStart) {
  std::ostringstream text;
  TransferStats stats;
  {
    ProgressDisplay display({.out = text, .err = text}, "x",
                            ProgressMode::kJson,
                            ProgressDisplay::Counting::kReads, stats, nullptr);
  }
  EXPECT_EQ(text.str(), "");
}

}  // namespace
}  // namespace dcp::tools
