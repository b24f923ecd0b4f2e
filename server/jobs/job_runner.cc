// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_runner.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/error_place.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/lens/model_config.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "dcp/checkpoint/verify/verify.h"
#include "google/protobuf/any.pb.h"
#include "google/protobuf/util/time_util.h"
#include "proto/error_detail.h"
#include "proto/messages/report_messages.h"
#include "proto/messages/request_messages.h"
#include "server/access/rooted_file_system.h"
#include "server/jobs/job_spec.h"
#include "server/process/log_text.h"

namespace dcp::server {
namespace {

namespace v1 = tessera::v1;

std::string Pack(const google::protobuf::Message& message) {
  google::protobuf::Any any;
  any.PackFrom(message);
  return any.SerializeAsString();
}

// Adds the path to an error.
absl::Status WithPath(const absl::Status& status, const JobSpec& spec) {
  const bool written = StatusSide(status) == ErrorSide::kDestination;
  return WithPlace(status, {.path = written ? spec.destination : spec.source});
}

google::protobuf::Duration Since(absl::Duration begin) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(
      absl::ToInt64Nanoseconds(SteadyNow() - begin));
}

// Has no journal: the records at the destination have all that is done, by any
// server.
absl::StatusOr<std::string> RunShare(RootedFileSystem& fs, JobSpec spec,
                                     JobControls& controls) {
  const absl::Duration begin = SteadyNow();
  ConvertOptions& options = spec.convert;
  options.stop = controls.stop;
  options.stats = &controls.stats;
  options.on_commit = [&] { controls.on_finishing(); };
  const absl::StatusOr<ShareResult> done =
      ConvertShare(fs, spec.source, spec.destination, std::move(options),
                   {.share = *spec.share, .on_begin = [&](uint64_t num_bytes) {
                      // About as many are read as are written.
                      controls.on_plan({.num_bytes = 2 * num_bytes});
                    }});
  if (!done.ok()) return WithPath(done.status(), spec);
  v1::ConvertResult result;
  ConvertPlanToProto(done->plan, result);
  v1::ConvertResult::ShareResult& share = *result.mutable_share();
  share.set_plan_id(done->id);
  share.set_num_pieces(done->num_pieces);
  share.set_num_pieces_written(done->num_written);
  share.set_bytes_read(controls.stats.bytes_read);
  share.set_bytes_written(controls.stats.bytes_written);
  share.set_is_complete(done->is_complete);
  share.set_has_committed(done->has_committed);
  *result.mutable_elapsed() = Since(begin);
  return Pack(result);
}

absl::StatusOr<std::string> RunConvert(RootedFileSystem& fs, JobSpec spec,
                                       JobControls& controls) {
  if (spec.share.has_value()) return RunShare(fs, std::move(spec), controls);
  const absl::Duration begin = SteadyNow();
  ConvertOptions& options = spec.convert;
  options.stop = controls.stop;
  options.stats = &controls.stats;
  options.on_plan = [&](const ConvertPlan& plan) {
    controls.on_plan({.num_files = plan.files.size(),
                      .num_bytes = plan.bytes_to_read + plan.bytes_to_write,
                      .bytes_kept = plan.bytes_kept});
  };
  options.on_commit = [&] { controls.on_finishing(); };
  options.journal = &controls.log;
  absl::StatusOr<ConvertPlan> plan =
      ConvertCheckpoint(fs, spec.source, spec.destination, std::move(options));
  if (!plan.ok()) return WithPath(plan.status(), spec);
  v1::ConvertResult result;
  ConvertPlanToProto(*plan, result);
  *result.mutable_elapsed() = Since(begin);
  return Pack(result);
}

absl::StatusOr<VerifyReport> Verify(
    FileSystem& fs, const JobSpec& spec, std::stop_token stop,
    TransferStats* stats, absl::AnyInvocable<void(uint64_t)> on_plan) {
  VerifyOptions options;
  options.open = spec.convert.open;
  options.sample_percent = spec.sample_percent;
  options.memory_bytes = spec.options.memory_bytes();
  options.stop = std::move(stop);
  options.stats = stats;
  options.on_plan = std::move(on_plan);
  absl::StatusOr<VerifyReport> report =
      VerifyCheckpoint(fs, spec.source, std::move(options));
  if (!report.ok()) return WithPath(report.status(), spec);
  return report;
}

absl::StatusOr<std::string> RunVerify(FileSystem& fs, const JobSpec& spec,
                                      JobControls& controls) {
  DCP_ASSIGN_OR_RETURN(
      const VerifyReport report,
      Verify(fs, spec, controls.stop, &controls.stats,
             [&](uint64_t bytes) { controls.on_plan({.num_bytes = bytes}); }));
  v1::VerifyReport result;
  VerifyReportToProto(report, result);
  return Pack(result);
}

// Begins to verify, and stops before the payload would be read.
absl::StatusOr<std::string> PlanVerify(FileSystem& fs, const JobSpec& spec,
                                       std::stop_token stop) {
  std::stop_source planned;
  const std::stop_callback forward(stop, [&] { planned.request_stop(); });
  std::optional<uint64_t> num_bytes;
  const absl::StatusOr<VerifyReport> report =
      Verify(fs, spec, planned.get_token(), nullptr, [&](uint64_t bytes) {
        num_bytes = bytes;
        planned.request_stop();
      });
  if (!num_bytes.has_value()) return report.status();
  v1::ConvertResult result;
  result.set_bytes_to_read(*num_bytes);
  result.set_memory_bytes(spec.options.memory_bytes());
  return Pack(result);
}

absl::Status RemovedError(const std::string& client) {
  return WithReason(absl::PermissionDeniedError(absl::StrCat(
                        client, " is no longer a client of this server")),
                    ErrorReason::CLIENT_REMOVED, {{"client", client}});
}

// Ends a job that may not continue because of `why`: removes the files of
// earlier runs, with the server's rights. Returns the result instead if the job
// had completed.
absl::StatusOr<std::string> GiveUp(FileSystem& fs, const Client& server,
                                   const JobRequest& request,
                                   const absl::Status& why,
                                   JobControls& controls) {
  if (controls.log.before.empty()) return why;
  const absl::StatusOr<std::string> path =
      server.CheckWrite(request.destination);
  absl::Status removed =
      path.ok()
          ? absl::FailedPreconditionError(
                "it leads to another path than when the job was submitted")
          : path.status();
  if (path.ok() && *path == request.destination) {
    std::stop_source stop;
    stop.request_stop();
    controls.log.keeps = nullptr;
    RootedFileSystem rooted(fs, server);
    ConvertOptions options;
    options.stop = stop.get_token();
    options.journal = &controls.log;
    const absl::StatusOr<ConvertPlan> plan = ConvertCheckpoint(
        rooted, request.source, request.destination, std::move(options));
    if (plan.ok()) {
      v1::ConvertResult result;
      ConvertPlanToProto(*plan, result);
      return Pack(result);
    }
    removed = plan.status();
  }
  if (!absl::IsCancelled(removed)) {
    DCP_LOG(kWarning) << "event=unfinished_output_left path="
                      << LogText(request.destination) << CallField(request)
                      << " error=" << LogText(removed.message());
  }
  return why;
}

}  // namespace

absl::StatusOr<JobRequest> JobRunner::Check(JobKind kind, std::string bytes,
                                            const Client& client) const {
  JobRequest request;
  request.kind = kind;
  request.bytes = std::move(bytes);
  DCP_ASSIGN_OR_RETURN(const JobSpec spec,
                       ReadRequest(kind, request.bytes, client, options_));
  request.request_id = spec.options.request_id();
  request.source = spec.source;
  request.destination = spec.destination;
  request.memory_bytes = spec.options.memory_bytes();
  return request;
}

absl::StatusOr<std::string> JobRunner::Plan(const JobRequest& request,
                                            const Client& client,
                                            std::stop_token stop) const {
  DCP_ASSIGN_OR_RETURN(JobSpec spec, ReadAgain(request, client, options_));
  RootedFileSystem fs(fs_, client);
  if (request.kind == JobMetadata::VERIFY) return PlanVerify(fs, spec, stop);
  DCP_RETURN_IF_ERROR(AddModelConfig(fs, spec.source, spec.convert.open));
  spec.convert.stop = std::move(stop);
  const absl::StatusOr<ConvertPlan> plan =
      PlanConvert(fs, spec.source, spec.destination, std::move(spec.convert));
  if (!plan.ok()) return WithPath(plan.status(), spec);
  v1::ConvertResult result;
  ConvertPlanToProto(*plan, result);
  return Pack(result);
}

absl::Status JobRunner::CheckRights(const JobRequest& request,
                                    const std::string& client_name) const {
  const Client* const client = access_.FindClient(client_name);
  if (client == nullptr) return RemovedError(client_name);
  DCP_RETURN_IF_ERROR(client->CheckRead(request.source).status());
  if (request.destination.empty()) return absl::OkStatus();
  return client->CheckWrite(request.destination).status();
}

absl::StatusOr<std::string> JobRunner::Run(const JobRequest& request,
                                           const std::string& client_name,
                                           JobControls& controls) const {
  const Client* client = access_.FindClient(client_name);
  absl::StatusOr<JobSpec> spec = client != nullptr
                                     ? ReadAgain(request, *client, options_)
                                     : RemovedError(client_name);
  if (!spec.ok()) {
    return GiveUp(fs_, access_.server(), request, spec.status(), controls);
  }
  RootedFileSystem fs(fs_, access_, *client);
  absl::StatusOr<std::string> result;
  if (request.kind == JobMetadata::VERIFY) {
    result = RunVerify(fs, *spec, controls);
  } else {
    const absl::Status configured =
        WithPath(AddModelConfig(fs, spec->source, spec->convert.open), *spec);
    if (!configured.ok()) {
      return GiveUp(fs_, access_.server(), request, configured, controls);
    }
    result = RunConvert(fs, *std::move(spec), controls);
  }
  if (result.ok()) return result;
  // If a job has lost the right to run, the error says so.
  const absl::Status rights = CheckRights(request, client_name);
  if (rights.ok()) return result;
  return GiveUp(fs_, access_.server(), request, rights, controls);
}

}  // namespace dcp::server
