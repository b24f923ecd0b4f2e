// SPDX-License-Identifier: Apache-2.0
// Looks twice a second.
// Tested by tests/e2e/workers_test.cc.
#include "tools/dcp_convert/commands/work_wait.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/io/file_system.h"
#include "tools/dcp_convert/output/stopwatch.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

constexpr std::chrono::milliseconds kPause(500);

// Pauses, unless a stop comes first.
void Pause(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, stop, kPause, [] { return false; });
}

std::string Missing(const std::optional<WorkStatus>& status) {
  if (!status.has_value()) return "no worker has begun";
  const size_t num_left = status->num_pieces - status->done.size();
  if (num_left == 0) {
    return "all pieces are written, but the last worker has not made the "
           "checkpoint appear; start any worker again";
  }
  return absl::StrCat(FormatPlural(num_left, "piece"), " of ",
                      status->num_pieces, num_left == 1 ? " is" : " are",
                      " missing; start the workers that died again");
}

}  // namespace

absl::Status WaitForWork(const Context& context, WorkGoal goal,
                         double passed_seconds,
                         absl::FunctionRef<void(const WorkStatus&)> show) {
  const bool is_verify = !context.line.work.records.empty();
  const std::string& dst =
      is_verify ? context.line.work.records : context.line.paths.back();
  const double limit_seconds =
      static_cast<double>(context.line.work.wait_seconds);
  const Stopwatch stopwatch;
  while (true) {
    DCP_ASSIGN_OR_RETURN(const std::optional<WorkStatus> status,
                         FindWork(context.fs, dst));
    if (!status.has_value() && is_verify) {
      // No worker has begun. The directory may be there anyway.
    } else if (!status.has_value()) {
      // Nothing is there before the first worker begins.
      absl::Status there = context.fs.Stat(dst).status();
      if (there.ok()) return absl::OkStatus();
      if (!absl::IsNotFound(there)) return there;
    } else {
      show(*status);
      if (goal == WorkGoal::kAllPieces && status->is_complete()) {
        return absl::OkStatus();
      }
    }
    if (context.stop.stop_requested()) {
      return absl::CancelledError("stopped while waiting for other workers");
    }
    if (limit_seconds > 0 &&
        passed_seconds + stopwatch.seconds() >= limit_seconds) {
      return WithSide(
          absl::DeadlineExceededError(absl::StrCat(
              dst,
              is_verify ? " is not complete after " : " is not there after ",
              context.line.work.wait_seconds, " s: ", Missing(status))),
          ErrorSide::kDestination);
    }
    Pause(context.stop);
  }
}

}  // namespace dcp::tools
