// SPDX-License-Identifier: Apache-2.0
// Sends each verb's request, and follows the progress.
// Tested by tests/tools/dcp_convert/dcp_convert_server_test.sh.
#include "tools/dcp_convert/daemon/daemon.h"

#include <utility>

#include "absl/time/time.h"
#include "dcp/base/status.h"
#include "proto/messages/report_messages.h"
#include "proto/messages/request_messages.h"

namespace dcp::tools {
namespace {

namespace v1 = tessera::v1;

// How long the user waits, after a stop, for the server to cancel the job.
constexpr absl::Duration kCancelTimeout = absl::Seconds(5);

// Reports the total once, when the server first knows it, and adds finished
// bytes to the counters, which several of these may share.
class ProgressTeller {
 public:
  explicit ProgressTeller(DaemonProgress& progress) : progress_(progress) {}

  void Tell(uint64_t done_bytes, uint64_t total_bytes) {
    if (total_bytes == 0) return;
    if (!told_) progress_.on_total(total_bytes);
    told_ = true;
    // It falls when a restarted server does some work again.
    progress_.stats.bytes_read += done_bytes - last_bytes_;
    progress_.stats.bytes_written += done_bytes - last_bytes_;
    last_bytes_ = done_bytes;
  }

 private:
  DaemonProgress& progress_;
  bool told_ = false;
  uint64_t last_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Connect(const CommandLine& line,
                                                        std::stop_token stop) {
  client::ClientOptions options;
  options.address = line.server.address;
  options.tls = line.server.tls;
  options.ca_file = line.server.ca_file;
  options.cert_file = line.server.cert_file;
  options.key_file = line.server.key_file;
  options.token_file = line.server.token_file;
  DCP_ASSIGN_OR_RETURN(std::shared_ptr<client::Channel> channel,
                       client::Channel::Open(options));
  return std::unique_ptr<Daemon>(
      new Daemon(std::move(channel), std::move(stop)));
}

absl::StatusOr<OwnedInspection> Daemon::Inspect(const CommandLine& line) {
  v1::InspectRequest request;
  SourceToProto(line.paths[0], SourceOpenOptions(line),
                *request.mutable_source());
  if (!line.inspect.tensors_glob.empty())
    request.add_names(line.inspect.tensors_glob);
  // The layout's name follows from the chunks.
  request.set_chunks(true);
  DCP_ASSIGN_OR_RETURN(
      const v1::InspectResponse response,
      checkpoints_.Inspect(std::move(request), {.stop = stop_}));
  return InspectionFrom(response);
}

absl::StatusOr<VerifyReport> Daemon::Verify(const CommandLine& line,
                                            DaemonProgress progress) {
  ProgressTeller teller(progress);
  DCP_ASSIGN_OR_RETURN(const v1::VerifyReport report,
                       checkpoints_.Verify(VerifyMessage(line),
                                           [&](const v1::ReadProgress& now) {
                                             teller.Tell(now.bytes_done(),
                                                         now.bytes_total());
                                           },
                                           {.stop = stop_}));
  return VerifyReportFromProto(report);
}

absl::StatusOr<DiffReport> Daemon::Diff(const CommandLine& line,
                                        DaemonProgress progress) {
  ProgressTeller teller(progress);
  DCP_ASSIGN_OR_RETURN(const v1::DiffReport report,
                       checkpoints_.Diff(DiffMessage(line),
                                         [&](const v1::ReadProgress& now) {
                                           teller.Tell(now.bytes_done(),
                                                       now.bytes_total());
                                         },
                                         {.stop = stop_}));
  return DiffReportFromProto(report);
}

absl::StatusOr<client::Job> Daemon::Submit(const CommandLine& line) {
  switch (*line.verb) {
    case Verb::kReshard:
      return jobs_.Reshard(ReshardMessage(line), {.stop = stop_});
    case Verb::kConsolidate:
      return jobs_.Consolidate(ConsolidateMessage(line), {.stop = stop_});
    default:
      return jobs_.Convert(ConvertMessage(line), {.stop = stop_});
  }
}

absl::StatusOr<ConvertPlan> Daemon::Convert(const CommandLine& line,
                                            DaemonProgress progress,
                                            ConvertOutcome& outcome) {
  DCP_ASSIGN_OR_RETURN(client::Job job, Submit(line));
  if (!job.done) {
    absl::StatusOr<client::Job> ended = WaitJob(job.name, progress);
    if (absl::IsCancelled(ended.status())) {
      // The user sees the interruption; the result of this call is not shown.
      jobs_.Cancel(job.name, {.timeout = kCancelTimeout}).IgnoreError();
    }
    DCP_RETURN_IF_ERROR(ended.status());
    job = *std::move(ended);
  }
  DCP_RETURN_IF_ERROR(job.status);
  if (!job.converted.has_value()) {
    return absl::DataLossError("the server's job ended without a result");
  }
  const v1::ConvertResult& result = *job.converted;
  outcome.seconds = static_cast<double>(result.elapsed().seconds()) +
                    static_cast<double>(result.elapsed().nanos()) * 1e-9;
  outcome.bytes_read = result.bytes_to_read();
  outcome.bytes_written = result.bytes_to_write();
  outcome.peak_memory_bytes = result.memory_bytes();
  if (result.has_share()) {
    const v1::ConvertResult::ShareResult& share = result.share();
    outcome.bytes_read = share.bytes_read();
    outcome.bytes_written = share.bytes_written();
    outcome.share = {.share = line.work.share.value_or(Share()),
                     .plan_id = share.plan_id(),
                     .num_pieces = share.num_pieces(),
                     .num_pieces_done = share.num_pieces_written(),
                     .is_complete = share.is_complete(),
                     .has_committed = share.has_committed()};
  }
  return ConvertPlanFromProto(result);
}

absl::StatusOr<std::vector<client::Job>> Daemon::ListJobs() {
  return jobs_.ListAll("", {.stop = stop_});
}

absl::StatusOr<client::Job> Daemon::WaitJob(const std::string& name,
                                            DaemonProgress progress) {
  ProgressTeller teller(progress);
  return jobs_.Watch(name,
                     [&](const client::Job& now) {
                       teller.Tell(now.metadata.bytes_done(),
                                   now.metadata.bytes_total());
                     },
                     {.stop = stop_});
}

absl::Status Daemon::CancelJob(const std::string& name) {
  return jobs_.Cancel(name, {.stop = stop_});
}

}  // namespace dcp::tools
