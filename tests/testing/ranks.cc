// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/ranks.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/rank_processes.h"

namespace fsdp::testing {
namespace {

// The number of this RunRanks call in the test; 0 for the first.
int NextCall() {
  static const ::testing::TestInfo* test = nullptr;
  static int call = 0;
  const ::testing::TestInfo* current =
      ::testing::UnitTest::GetInstance()->current_test_info();
  if (std::exchange(test, current) != current) call = 0;
  return call++;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int Number(const char* variable) {
  int number = -1;
  (void)absl::SimpleAtoi(Variable(variable), &number);
  return number;
}

bool IsRank() { return !Variable(kCallVariable).empty(); }

// The call to which this rank belongs.
int OwnCall() { return Number(kCallVariable); }

int RankSocket() { return Number(kSocketVariable); }

void Say(const std::string& message) {
  // MSG_NOSIGNAL: a rank without a parent is killed anyway.
  (void)send(RankSocket(), message.data(),
             std::min(message.size(), kRankMessageBytes), MSG_NOSIGNAL);
}

void WaitForGo() {
  char go = 0;
  if (recv(RankSocket(), &go, 1, 0) != 1) _exit(1);
}

[[noreturn]] void EndRank() {
  std::fflush(nullptr);
  // No destructors: a backend's threads may be stuck in a collective.
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

// Passes failures on as they happen, and ends the rank when the test ends early
// because an exception escaped.
class RankListener : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* file = result.file_name();
    std::string where;
    if (file != nullptr) {
      where = absl::StrCat(file, ":", result.line_number(), ": ");
    }
    // Without the stack trace that LibTorch's errors carry.
    const std::string message = result.message();
    Say(absl::StrCat("F", where,
                     message.substr(0, message.find("\nException raised"))));
  }
  void OnTestEnd(const ::testing::TestInfo&) override { EndRank(); }
};

[[noreturn]] void RunAsRank(const std::function<void()>& body) {
  // gtest owns it.
  ::testing::UnitTest::GetInstance()->listeners().Append(new RankListener());
  body();
  Say("D");
  WaitForGo();
  EndRank();
}

}  // namespace

std::vector<std::string> RunRanks(int world_size,
                                  const std::function<void()>& body,
                                  const RanksOptions& options) {
  const int call = NextCall();
  if (IsRank()) {
    if (call == OwnCall()) RunAsRank(body);
    return ReadReports(Variable(kDirectoryVariable), call, world_size);
  }
  RanksResult end = RunRankProcesses(world_size, options, call);
  if (!end.problems.empty()) {
    ADD_FAILURE() << absl::StrJoin(end.problems, "\n") << end.outputs;
  }
  return std::move(end.reports);
}

std::vector<std::string> RankFailures(int world_size,
                                      const std::function<void()>& body,
                                      const RanksOptions& options) {
  const int call = NextCall();
  if (!IsRank()) return RunRankProcesses(world_size, options, call).problems;
  if (call == OwnCall()) RunAsRank(body);
  return {};
}

void Report(const std::string& text) {
  TORCH_CHECK(IsRank(), "Report is for the ranks of RunRanks");
  const int rank = Number("RANK");
  std::ofstream(
      RankFile(Variable(kDirectoryVariable), "report", OwnCall(), rank),
      std::ios::app | std::ios::binary)
      << text;
}

void Report(double number) { Report(absl::StrFormat("%.17g\n", number)); }

std::vector<double> ParseNumbers(const std::string& report) {
  std::vector<double> numbers;
  for (const absl::string_view line :
       absl::StrSplit(report, '\n', absl::SkipEmpty())) {
    double number = 0;
    EXPECT_TRUE(absl::SimpleAtod(line, &number)) << line;
    numbers.push_back(number);
  }
  return numbers;
}

std::string SharedDir() {
  return absl::StrCat(Variable(kDirectoryVariable), "/",
                      Variable(kCallVariable));
}

void WaitForAllRanks() {
  Say("W");
  WaitForGo();
}

std::string ThrownMessage(const std::function<void()>& call) {
  std::string text;
  const auto take = [&text](const std::exception& error) {
    const auto* own = dynamic_cast<const c10::Error*>(&error);
    text = own == nullptr ? error.what() : own->what_without_backtrace();
    return true;
  };
  EXPECT_THAT(call, ::testing::Throws<std::exception>(::testing::Truly(take)));
  return text;
}

}  // namespace fsdp::testing
