// SPDX-License-Identifier: Apache-2.0
// Stopwatch: seconds since it was made, by a clock that is never adjusted.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_STOPWATCH_H_
#define TOOLS_DCP_CONVERT_OUTPUT_STOPWATCH_H_

#include <chrono>

namespace dcp::tools {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_STOPWATCH_H_
