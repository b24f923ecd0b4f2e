// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_operation.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "dcp/io/pipeline.h"
#include "google/protobuf/util/time_util.h"
#include "google/rpc/status.pb.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "proto/utf8.h"
#include "server/jobs/uuid.h"

namespace dcp::server {
namespace {

using google::longrunning::Operation;

constexpr absl::string_view kNamePrefix = "operations/";

void SetTimestamp(absl::Time time, google::protobuf::Timestamp& proto) {
  proto = google::protobuf::util::TimeUtil::NanosecondsToTimestamp(
      absl::ToUnixNanos(time));
}

}  // namespace

std::string OperationName(const Job& job) {
  return absl::StrCat(kNamePrefix, job.id);
}

absl::StatusOr<std::string> JobIdFromName(absl::string_view name) {
  absl::string_view id = name;
  if (absl::ConsumePrefix(&id, kNamePrefix) && IsUuid(id)) {
    return std::string(id);
  }
  return InvalidField("name",
                      absl::StrCat(" is '", ToUtf8(name.substr(0, 100)),
                                   "': it must be 'operations/' and a UUID"));
}

absl::Status NoSuchJob(absl::string_view name) {
  return WithReason(
      absl::NotFoundError(absl::StrCat("there is no operation '", name, "'")),
      ErrorReason::JOB_NOT_FOUND, {{"name", std::string(name)}});
}

Operation DescribeJob(const JobEntry& entry) {
  const Job& job = entry.job;
  JobMetadata metadata;
  metadata.set_kind(job.request.kind);
  metadata.set_state(job.state);
  metadata.set_source(ToUtf8(job.request.source));
  metadata.set_destination(ToUtf8(job.request.destination));
  SetTimestamp(job.create_time, *metadata.mutable_create_time());
  if (job.start_time != absl::InfinitePast()) {
    SetTimestamp(job.start_time, *metadata.mutable_start_time());
  }
  if (HasEnded(job.state)) {
    SetTimestamp(job.end_time, *metadata.mutable_end_time());
  }
  metadata.set_memory_bytes(job.request.memory_bytes);
  metadata.set_num_restarts(job.num_restarts);
  metadata.set_client(ToUtf8(job.client));
  if (entry.controls != nullptr) {
    const TransferStats& stats = entry.controls->stats;
    metadata.set_files_total(entry.size.num_files);
    metadata.set_files_done(entry.controls->log.num_files);
    entry.progress.Fill(stats.bytes_read + stats.bytes_written, metadata);
  }
  if (HasEnded(job.state)) metadata.clear_remaining();
  Operation operation;
  operation.set_name(OperationName(job));
  operation.mutable_metadata()->PackFrom(metadata);
  operation.set_done(HasEnded(job.state));
  return operation;
}

JobOutcome MakeOutcome(const absl::StatusOr<std::string>& response) {
  if (response.ok()) return {.response = *response, .error = ""};
  return {.response = "",
          .error = ToStatusProto(response.status()).SerializeAsString()};
}

absl::Status AddOutcome(const JobOutcome& outcome, Operation& operation) {
  const bool parsed =
      outcome.error.empty()
          ? operation.mutable_response()->ParseFromString(outcome.response)
          : operation.mutable_error()->ParseFromString(outcome.error);
  if (parsed) return absl::OkStatus();
  return WithReason(
      absl::DataLossError(absl::StrCat("the journal's result of ",
                                       operation.name(), " is malformed")),
      ErrorReason::JOURNAL_FAILED);
}

}  // namespace dcp::server
