// SPDX-License-Identifier: Apache-2.0
// StepRecorder: the bytes that a training step moved and the times that it
// waited; if tracing, also a trace that Chrome's tracing page and Perfetto
// display. The engine writes from the threads of forward and backward, one at a
// time. Read it only between steps. Users call fsdp/report.h.
#ifndef FSDP_ENGINE_COMM_STEP_RECORDER_H_
#define FSDP_ENGINE_COMM_STEP_RECORDER_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// Sums since the last reset. Bytes count one rank: received in gathers,
// contributed to reductions.
struct StepReport {
  int64_t num_all_gathers = 0;
  int64_t num_reduce_scatters = 0;
  int64_t num_all_reduces = 0;
  int64_t num_prefetched = 0;  // gathers already started when needed
  uint64_t gathered_bytes = 0;
  uint64_t reduced_bytes = 0;
  uint64_t all_reduced_bytes = 0;
  double gather_wait_seconds = 0;  // time the CPU waited for gathers
  double reduce_wait_seconds = 0;
  uint64_t unsharded_bytes = 0;       // gathered at this moment
  uint64_t unsharded_bytes_peak = 0;  // the most at once
};

class StepRecorder {
 public:
  // A stretch of time on one row of the trace.
  struct Span {
    std::string row;   // "all-gather", "reduce-scatter", "wait", ...
    std::string name;  // the group
    int64_t begin_us;
    int64_t duration_us;
  };

  StepReport& report() { return report_; }
  const StepReport& report() const { return report_; }
  // Sets the counters to zero, except the bytes that are gathered now.
  void Reset();

  void AddUnsharded(uint64_t num_bytes);
  void RemoveUnsharded(uint64_t num_bytes);

  void set_tracing(bool tracing) { tracing_ = tracing; }
  bool tracing() const { return tracing_; }
  // Does nothing unless tracing; keeps at most kMaxSpans spans.
  void AddSpan(const char* row, const std::string& name, int64_t begin_us);
  const std::vector<Span>& spans() const { return spans_; }
  static int64_t NowMicros();

  static constexpr size_t kMaxSpans = 1 << 20;

 private:
  StepReport report_;
  bool tracing_ = false;
  std::vector<Span> spans_;
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_COMM_STEP_RECORDER_H_
