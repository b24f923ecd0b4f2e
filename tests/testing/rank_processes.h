// SPDX-License-Identifier: Apache-2.0
// The processes that RunRanks starts, as the parent sees them, and the protocol
// between parent and rank. They talk over a socket that keeps packets apart:
//
//   rank -> parent   F<text>  an expectation failed, or an exception escaped
//                    W        I am in WaitForAllRanks
//                    D        `body` is done
//   parent -> rank   G        go on: all that live have said the same
//
// and if a socket closes before the D was answered, the rank has died. Larger
// data goes through files: for call c and rank r, the test's directory has
// report.c.r, output.c.r and the shared directory c.
#ifndef TESTS_TESTING_RANK_PROCESSES_H_
#define TESTS_TESTING_RANK_PROCESSES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tests/testing/ranks.h"

namespace fsdp::testing {

// A rank's variables: the rank's end of the socket, the number of the RunRanks
// call in the test, and the test's directory.
inline constexpr char kSocketVariable[] = "TESSERA_RANKS_SOCKET";
inline constexpr char kCallVariable[] = "TESSERA_RANKS_CALL";
inline constexpr char kDirectoryVariable[] = "TESSERA_RANKS_DIRECTORY";

// A rank's longest message, in bytes.
inline constexpr size_t kRankMessageBytes = size_t{64} << 10;

// The path for a file of `kind`, "report" or "output".
std::string RankFile(const std::string& directory, const char* kind, int call,
                     int rank);

// The texts that the call's ranks passed to Report, by rank.
std::vector<std::string> ReadReports(const std::string& directory, int call,
                                     int world_size);

struct RanksResult {
  std::vector<std::string> problems;  // empty if all went well
  std::string outputs;                // from all ranks, if there are problems
  std::vector<std::string> reports;   // by rank
};

// Starts the current test again as each of the ranks of `call`, which counts
// from 0 in the test, and waits until all are gone. For the thread of the test.
RanksResult RunRankProcesses(int world_size, const RanksOptions& options,
                             int call);

}  // namespace fsdp::testing

#endif  // TESTS_TESTING_RANK_PROCESSES_H_
