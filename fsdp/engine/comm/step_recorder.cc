// SPDX-License-Identifier: Apache-2.0
// Counts bytes and waits, records spans, and writes them as JSON.
// Tested by tests/fsdp/report_test.cc.
#include "fsdp/engine/comm/step_recorder.h"

#include <algorithm>

namespace fsdp {

void StepRecorder::Reset() {
  const uint64_t unsharded = report_.unsharded_bytes;
  report_ = {};
  report_.unsharded_bytes = unsharded;
  report_.unsharded_bytes_peak = unsharded;
  spans_.clear();
}

void StepRecorder::AddUnsharded(uint64_t num_bytes) {
  report_.unsharded_bytes += num_bytes;
  report_.unsharded_bytes_peak =
      std::max(report_.unsharded_bytes_peak, report_.unsharded_bytes);
}

void StepRecorder::RemoveUnsharded(uint64_t num_bytes) {
  report_.unsharded_bytes -= num_bytes;
}

void StepRecorder::AddSpan(const char* row, const std::string& name,
                           int64_t begin_us) {
  if (!tracing_ || spans_.size() >= kMaxSpans) return;
  spans_.push_back({row, name, begin_us, NowMicros() - begin_us});
}

int64_t StepRecorder::NowMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace fsdp
