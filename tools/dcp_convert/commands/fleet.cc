// SPDX-License-Identifier: Apache-2.0
// One thread for each server works on shares until none is left.
// Tested by tests/e2e/fleet_test.cc.
#include "tools/dcp_convert/commands/fleet.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/status.h"
#include "dcp/base/thread.h"
#include "dcp/plan/pieces.h"
#include "tools/dcp_convert/output/stopwatch.h"

namespace dcp::tools {
namespace {

class Fleet {
 public:
  Fleet(const Context& context, DaemonProgress progress)
      : line_(context.line),
        err_(context.console.err),
        progress_(progress),
        addresses_(absl::StrSplit(context.line.server.address, ',')),
        num_running_(addresses_.size()),
        forward_(context.stop, [this] { stop_.request_stop(); }) {}

  absl::StatusOr<ConvertPlan> Run(ConvertOutcome& outcome) {
    std::vector<std::unique_ptr<Daemon>> daemons;
    for (const std::string& address : addresses_) {
      CommandLine line = line_;
      line.server.address = address;
      DCP_ASSIGN_OR_RETURN(daemons.emplace_back(),
                           Daemon::Connect(line, stop_.get_token()));
    }
    const Stopwatch stopwatch;
    {
      std::vector<Thread> threads;
      for (size_t i = 0; i < daemons.size(); ++i) {
        absl::StatusOr<Thread> thread =
            Thread::Start([this, &daemons, i] { Work(*daemons[i], i); });
        if (!thread.ok()) {
          stop_.request_stop();
          return thread.status();
        }
        threads.push_back(*std::move(thread));
      }
    }
    absl::MutexLock lock(&mutex_);
    DCP_RETURN_IF_ERROR(error_);
    if (!waiting_.empty()) {
      return absl::UnavailableError(
          absl::StrCat("no server answers any more: ", lost_.message(),
                       "; run the same command again, also with others"));
    }
    outcome = std::move(sum_);
    outcome.seconds = stopwatch.seconds();
    if (!outcome.share->is_complete) {
      return absl::UnavailableError(
          "all shares were done, but the checkpoint is not there, because a "
          "server was lost while it made it appear: run the same command "
          "again");
    }
    return *std::move(plan_);
  }

 private:
  // Does the server's own share, and then shares that others have lost.
  void Work(Daemon& daemon, size_t server) {
    std::optional<uint32_t> share = static_cast<uint32_t>(server);
    while (share.has_value()) {
      CommandLine line = line_;
      line.server.address = addresses_[server];
      line.work.share = Share{
          .index = *share, .count = static_cast<uint32_t>(addresses_.size())};
      ConvertOutcome outcome;
      absl::StatusOr<ConvertPlan> plan = daemon.Convert(
          line, {progress_.stats, [this](uint64_t bytes) { AddTotal(bytes); }},
          outcome);
      if (!End(server, *share, std::move(plan), outcome)) return;
      share = TakeLost();
    }
  }

  // Waits for a share that another server loses; none once none can be lost.
  std::optional<uint32_t> TakeLost() {
    absl::MutexLock lock(&mutex_);
    while (waiting_.empty() && num_running_ > 0 && error_.ok()) {
      changed_.Wait(&mutex_);
    }
    if (waiting_.empty() || !error_.ok()) return std::nullopt;
    const uint32_t share = waiting_.back();
    waiting_.pop_back();
    ++num_running_;
    return share;
  }

  // Whether the server can do more.
  bool End(size_t server, uint32_t share, absl::StatusOr<ConvertPlan> plan,
           const ConvertOutcome& outcome) {
    absl::MutexLock lock(&mutex_);
    --num_running_;
    changed_.SignalAll();
    if (plan.ok()) {
      Add(*std::move(plan), outcome);
      return true;
    }
    if (absl::IsUnavailable(plan.status())) {
      lost_ = Annotate(plan.status(), addresses_[server]);
      waiting_.push_back(share);
      err_ << absl::StrCat("dcp-convert: share ", share, " of ",
                           addresses_.size(),
                           " goes to another server: ", lost_.message(), "\n")
           << std::flush;
      return false;
    }
    if (error_.ok()) {
      error_ = Annotate(plan.status(), addresses_[server]);
      stop_.request_stop();
    }
    return false;
  }

  void Add(ConvertPlan plan, const ConvertOutcome& outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    sum_.bytes_read += outcome.bytes_read;
    sum_.bytes_written += outcome.bytes_written;
    sum_.peak_memory_bytes =
        std::max(sum_.peak_memory_bytes, outcome.peak_memory_bytes);
    ShareOutcome& all = sum_.share.has_value()
                            ? *sum_.share
                            : sum_.share.emplace(ShareOutcome{});
    const ShareOutcome done = outcome.share.value_or(ShareOutcome());
    all.plan_id = done.plan_id;
    all.num_pieces = done.num_pieces;
    all.num_pieces_done += done.num_pieces_done;
    all.is_complete |= done.is_complete;
    all.has_committed |= done.has_committed;
    // The worker that made it appear knows everybody's findings.
    if (!plan_.has_value() || done.has_committed) plan_ = std::move(plan);
  }

  // Shares have about the same size.
  void AddTotal(uint64_t num_bytes) {
    absl::MutexLock lock(&mutex_);
    progress_.on_total(num_bytes * addresses_.size());
  }

  const CommandLine& line_;
  std::ostream& err_;
  DaemonProgress progress_;
  const std::vector<std::string> addresses_;
  std::stop_source stop_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::vector<uint32_t> waiting_ ABSL_GUARDED_BY(mutex_);  // lost shares
  size_t num_running_ ABSL_GUARDED_BY(mutex_);             // shares
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);  // the last server's
  ConvertOutcome sum_ ABSL_GUARDED_BY(mutex_);
  std::optional<ConvertPlan> plan_ ABSL_GUARDED_BY(mutex_);
  // The last member, because it uses stop_.
  std::stop_callback<std::function<void()>> forward_;
};

}  // namespace

absl::StatusOr<ConvertPlan> ConvertByFleet(const Context& context,
                                           DaemonProgress progress,
                                           ConvertOutcome& outcome) {
  return Fleet(context, progress).Run(outcome);
}

}  // namespace dcp::tools
