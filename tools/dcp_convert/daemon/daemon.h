// SPDX-License-Identifier: Apache-2.0
// Daemon: lets a dcp-server do a verb's work instead of this process. Blocking;
// one thread. A stop ends the call on the server, and cancels a job that this
// object started.
#ifndef TOOLS_DCP_CONVERT_DAEMON_DAEMON_H_
#define TOOLS_DCP_CONVERT_DAEMON_DAEMON_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/checkpoint_client.h"
#include "client/job_client.h"
#include "dcp/io/pipeline.h"
#include "tools/dcp_convert/daemon/daemon_messages.h"
#include "tools/dcp_convert/options/command_line.h"
#include "tools/dcp_convert/output/json_output.h"

namespace dcp::tools {

// Where a call's progress goes: `stats` counts reads and writes alike, and
// `on_total` is called once the total is known.
struct DaemonProgress {
  TransferStats& stats;
  absl::FunctionRef<void(uint64_t total_bytes)> on_total;
};

class Daemon {
 public:
  // Uses the command line's address, certificates and token.
  static absl::StatusOr<std::unique_ptr<Daemon>> Connect(
      const CommandLine& line, std::stop_token stop);

  absl::StatusOr<OwnedInspection> Inspect(const CommandLine& line);
  absl::StatusOr<VerifyReport> Verify(const CommandLine& line,
                                      DaemonProgress progress);
  absl::StatusOr<DiffReport> Diff(const CommandLine& line,
                                  DaemonProgress progress);
  // All writing verbs; --plan only plans. Sets `outcome` if something was
  // written.
  absl::StatusOr<ConvertPlan> Convert(const CommandLine& line,
                                      DaemonProgress progress,
                                      ConvertOutcome& outcome);

  absl::StatusOr<std::vector<client::Job>> ListJobs();
  absl::StatusOr<client::Job> WaitJob(const std::string& name,
                                      DaemonProgress progress);
  absl::Status CancelJob(const std::string& name);

 private:
  Daemon(std::shared_ptr<const client::Channel> channel, std::stop_token stop)
      : checkpoints_(channel),
        jobs_(std::move(channel)),
        stop_(std::move(stop)) {}

  absl::StatusOr<client::Job> Submit(const CommandLine& line);

  client::CheckpointClient checkpoints_;
  client::JobClient jobs_;
  const std::stop_token stop_;
};

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_DAEMON_DAEMON_H_
