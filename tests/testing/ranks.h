// SPDX-License-Identifier: Apache-2.0
// RunRanks: a test of several processes, in a few lines.
//
//   TEST(Mesh, SumsOverTheWorld) {
//     RunRanks(4, [] {
//       init_process_group();
//       std::vector<at::Tensor> t = {at::ones({2})};
//       world_group()->allreduce(t)->wait();
//       EXPECT_EQ(t[0][0].item<float>(), 4);
//     });
//   }
//
// Each rank is a process: this binary, started again with the filter set to the
// current test and with the variables that torchrun sets. The parent serves one
// store on a free port at 127.0.0.1. In a rank the test's body runs up to this
// call (so every rank computes the captures of `body` again), then `body`, then
// the process ends: nothing after the call runs in a rank. The ranks end
// together, so that none closes a connection that another still reads from.
//
// A rank's failed expectations and exceptions become test failures in the
// parent, with the rank in front; only then is the ranks' output shown. If a
// rank fails or dies, or the deadline passes, all ranks are killed. For
// counting collectives see counting_backend.h. For the test's thread.
#ifndef TESTS_TESTING_RANKS_H_
#define TESTS_TESTING_RANKS_H_

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::testing {

struct RanksOptions {
  // For the whole call.
  std::chrono::seconds deadline = std::chrono::seconds(120);
  // Ranks that may end before the others, in any way, without failing the test.
  std::vector<int> may_die = {};
  // Variables to set in every rank, or to unset if the value is empty.
  std::vector<std::pair<std::string, std::string>> environment = {};
  // false: rank 0 serves the store, at a port that was free a moment ago, as
  // without torchrun.
  bool agent_store = true;
};

// Runs `body` in `world_size` processes and waits for them. Returns each rank's
// reported text, by rank; the ranks of a later call in the same test get the
// same values.
std::vector<std::string> RunRanks(int world_size,
                                  const std::function<void()>& body,
                                  const RanksOptions& options = {});

// The same, but returns the failures, "rank 2: ...", and does not fail the
// test.
std::vector<std::string> RankFailures(int world_size,
                                      const std::function<void()>& body,
                                      const RanksOptions& options = {});

// Within `body`: adds to the text that RunRanks returns for this rank.
void Report(const std::string& text);
// Formats the number so that ParseNumbers returns it exactly.
void Report(double number);
// Parses the numbers from a Report, one a line.
std::vector<double> ParseNumbers(const std::string& report);

// Within `body`: a directory that all ranks share and that is removed at the
// end.
std::string SharedDir();

// Within `body`: waits, without collectives, until every living rank has called
// it.
void WaitForAllRanks();

// The message of the exception that `call` throws, without the stack trace. If
// it throws none, fails the test and returns an empty string.
std::string ThrownMessage(const std::function<void()>& call);

}  // namespace fsdp::testing

#endif  // TESTS_TESTING_RANKS_H_
