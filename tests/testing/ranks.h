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
// Each rank is a process of its own: this binary started anew with the filter
// set to the current test, and with the variables that torchrun sets, on one
// store that the parent serves on a free port of 127.0.0.1. There the test's
// body runs up to this call (so what `body` captures is there in every rank,
// computed anew), then `body`, then the process ends: nothing after the call
// runs in a rank. The ranks end together, so that none closes a connection
// that another still reads from.
//
// Failed expectations and exceptions of a rank become failures of the test in
// the parent, with the rank in front; what the ranks printed is shown only
// then. When a rank fails, dies, or the deadline passes, all are killed.
// Counting collectives: counting_backend.h. For the thread of the test.
#ifndef TESTS_TESTING_RANKS_H_
#define TESTS_TESTING_RANKS_H_

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::testing {

struct RanksOptions {
  // For all of the call.
  std::chrono::seconds deadline = std::chrono::seconds(120);
  // Ranks that end before the others, by any means, without failing the test.
  std::vector<int> may_die = {};
  // Set, or with an empty value unset, in every rank.
  std::vector<std::pair<std::string, std::string>> environment = {};
  // false: rank 0 serves the store, at a port that was free a moment ago, as
  // without torchrun.
  bool agent_store = true;
};

// Runs `body` in `world_size` processes and waits for them. Returns what each
// rank gave to Report, by rank; a later call in the same test finds the same
// values in its ranks.
std::vector<std::string> RunRanks(int world_size,
                                  const std::function<void()>& body,
                                  const RanksOptions& options = {});

// The same, but returns what went wrong, "rank 2: ...", and fails nothing.
std::vector<std::string> FailuresOfRanks(int world_size,
                                         const std::function<void()>& body,
                                         const RanksOptions& options = {});

// Within `body`: adds to what RunRanks returns for this rank.
void Report(const std::string& text);
// As text that gives the same number back.
void Report(double number);
// The numbers of a Report, one a line.
std::vector<double> ParseNumbers(const std::string& report);

// Within `body`: a directory that is the same in all ranks and removed in the
// end.
std::string SharedDir();

// Within `body`: waits, without collectives, until every rank that is alive
// is here.
void WaitForAllRanks();

// The message of the exception that `call` ends with, without the stack trace;
// a failure of the test, and empty, when it ends without.
std::string ErrorOf(const std::function<void()>& call);

}  // namespace fsdp::testing

#endif  // TESTS_TESTING_RANKS_H_
