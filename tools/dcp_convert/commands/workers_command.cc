// SPDX-License-Identifier: Apache-2.0
// The verb workers: shows, awaits or discards work that several processes
// share.
// Tested by tests/e2e/workers_test.cc.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/share/work_status.h"
#include "dcp/io/pipeline.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/commands/work_wait.h"
#include "tools/dcp_convert/output/json_output.h"
#include "tools/dcp_convert/output/progress.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/dcp_convert/output/verify_text.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// A worker may still be running if it wrote a piece more recently than this.
constexpr int64_t kRecentSeconds = 60;

struct HostWork {
  size_t num_pieces = 0;
  uint64_t num_bytes = 0;
  uint64_t milliseconds = 0;
  int64_t last_ns = 0;
};

std::string Age(int64_t written_ns) {
  const absl::Duration age = absl::Now() - absl::FromUnixNanos(written_ns);
  return absl::FormatDuration(
      absl::Trunc(std::max(age, absl::ZeroDuration()), absl::Seconds(1)));
}

std::string RenderStatus(const WorkStatus& status) {
  std::map<std::string, HostWork> hosts;
  uint64_t num_bytes = 0;
  for (const WorkStatus::Done& done : status.done) {
    HostWork& host = hosts[done.host];
    ++host.num_pieces;
    host.num_bytes += done.bytes;
    host.milliseconds += done.milliseconds;
    host.last_ns = std::max(host.last_ns, done.written_ns);
    num_bytes += done.bytes;
  }
  Table table({{"HOST"},
               {"PIECES", Align::kRight},
               {"SIZE", Align::kRight},
               {"TIME", Align::kRight},
               {"LAST", Align::kRight}});
  for (const auto& [name, host] : hosts) {
    table.AddRow({name, FormatCount(host.num_pieces),
                  FormatBytes(host.num_bytes),
                  FormatSeconds(static_cast<double>(host.milliseconds) / 1000),
                  absl::StrCat(Age(host.last_ns), " ago")});
  }
  return absl::StrCat(hosts.empty() ? "" : absl::StrCat(table.Render(), "\n"),
                      "plan ", status.id, ": ", FormatCount(status.done.size()),
                      " of ", FormatPlural(status.num_pieces, "piece"),
                      " done, ", FormatBytes(num_bytes), " of ",
                      FormatBytes(status.num_bytes), "\n");
}

absl::StatusOr<ExitCode> Discard(const Context& context,
                                 const std::string& dst) {
  const absl::StatusOr<std::optional<WorkStatus>> status =
      FindWork(context.fs, dst);
  // Work from several plans is discarded as well. Nobody works on a complete
  // verify.
  if (status.ok() && status->has_value() &&
      !((*status)->report.has_value() && (*status)->is_complete())) {
    for (const WorkStatus::Done& done : (*status)->done) {
      const absl::Duration age =
          absl::Now() - absl::FromUnixNanos(done.written_ns);
      if (age > absl::Seconds(kRecentSeconds)) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          dst, ": a worker on ", done.host, " wrote piece ", done.piece, " ",
          Age(done.written_ns), " ago; end all workers, and run again ",
          kRecentSeconds, " s after that"));
    }
  }
  DCP_ASSIGN_OR_RETURN(const size_t num_plans, DiscardWork(context.fs, dst));
  context.console.out << (num_plans == 0 ? "no unfinished work" : "discarded")
                      << "\n";
  return kExitDone;
}

absl::Status Wait(const Context& context) {
  TransferStats stats;
  ProgressDisplay progress(context.console, "workers", context.line.progress,
                           ProgressDisplay::Counting::kWrites, stats,
                           /*opening=*/nullptr);
  const absl::Status waited =
      WaitForWork(context,
                  context.line.work.records.empty() ? WorkGoal::kCheckpoint
                                                    : WorkGoal::kAllPieces,
                  /*passed_seconds=*/0, [&](const WorkStatus& status) {
                    uint64_t num_bytes = 0;
                    for (const WorkStatus::Done& done : status.done) {
                      num_bytes += done.bytes;
                    }
                    stats.bytes_written = num_bytes;
                    progress.Start(status.num_bytes);
                  });
  progress.Finish();
  return waited;
}

}  // namespace

absl::StatusOr<ExitCode> RunWorkers(const Context& context) {
  const CommandLine& line = context.line;
  const std::string& dst = line.paths[0];
  if (line.workers.discard) return Discard(context, dst);
  if (line.work.wait) DCP_RETURN_IF_ERROR(Wait(context));
  DCP_ASSIGN_OR_RETURN(const std::optional<WorkStatus> status,
                       FindWork(context.fs, dst));
  // Without --records, a verify shows only in records that exist.
  const bool is_verify = !line.work.records.empty() ||
                         (status.has_value() && status->report.has_value());
  const bool is_there = context.fs.Stat(dst).ok();
  const bool complete = is_verify ? status.has_value() && status->is_complete()
                                  : !status.has_value() && is_there;
  if (line.json) {
    context.console.out << WorkersJson(dst, status, complete);
  } else if (status.has_value()) {
    context.console.out << RenderStatus(*status);
    if (is_verify) {
      context.console.out << "\n"
                          << RenderReport(dst, *status->report, std::nullopt);
    }
  } else {
    context.console.out << Printable(dst)
                        << (complete ? ": complete, no worker has work left\n"
                            : is_there
                                ? ": no worker has begun\n"
                                : ": no worker has begun, and nothing is "
                                  "there\n");
  }
  if (!status.has_value() && !is_there) return kExitSource;
  return is_verify && complete ? CodeOfReport(*status->report, /*strict=*/false)
                               : kExitDone;
}

}  // namespace dcp::tools
