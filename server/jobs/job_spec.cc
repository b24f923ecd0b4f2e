// SPDX-License-Identifier: Apache-2.0
// Reads and checks the requests for jobs.
// Tested by tests/server/jobs/job_runner_test.cc.
#include "server/jobs/job_spec.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/object/object_url.h"
#include "proto/error_detail.h"
#include "proto/messages/convert_messages.h"
#include "proto/messages/map_messages.h"
#include "proto/messages/request_messages.h"
#include "proto/utf8.h"
#include "server/jobs/uuid.h"
#include "server/memory/memory_shares.h"

namespace dcp::server {
namespace {

namespace v1 = tessera::v1;

// Not applied again to a submitted job, because earlier releases accepted any
// text.
absl::Status CheckRequestId(const v1::JobOptions& options) {
  const std::string& id = options.request_id();
  if (id.empty() || (IsUuid(id) && !IsNilUuid(id))) return absl::OkStatus();
  return InvalidField(
      "options.request_id",
      IsUuid(id) ? " is the UUID of zeros only, which is the same for everyone"
                 : absl::StrCat(" is '", ToUtf8(id.substr(0, kUuidBytes + 1)),
                                "': it must be a UUID such as "
                                "f47ac10b-58cc-4372-a567-0e02b2c3d479"));
}

// The memory for the plan of a conversion onto many ranks, which is a part of
// the job's memory. Plans for a few ranks are small compared with the rest.
uint64_t PlanBytes(const JobSpec& spec) {
  constexpr int64_t kFewRanks = 1024;
  constexpr uint64_t kBytesPerRank = 1024;
  const int64_t num_ranks =
      spec.convert.mesh.has_value() ? spec.convert.mesh->num_ranks() : 1;
  return num_ranks > kFewRanks
             ? static_cast<uint64_t>(num_ranks) * kBytesPerRank
             : 0;
}

// Sets the memory of the job unless the request did.
absl::Status SetMemory(const ServerOptions& server, JobSpec& spec) {
  if (spec.options.memory_bytes() == 0) {
    spec.options.set_memory_bytes(JobMemoryBytes(server));
  }
  const uint64_t memory = spec.options.memory_bytes();
  const uint64_t most =
      DivideMemory(server.max_memory_bytes, server.num_readers).jobs_bytes;
  const bool in_store =
      IsObjectUrl(spec.source) || IsObjectUrl(spec.destination);
  const uint64_t plan = PlanBytes(spec);
  const uint64_t least =
      plan + (in_store ? kMinBlocks * kObjectBlockBytes : kMinMemoryBytes);
  if (memory < least || memory > most) {
    return InvalidField(
        "options.memory_bytes",
        absl::StrCat(" is ", memory, "; allowed are ", least, " to ", most,
                     in_store ? " with an object store" : "",
                     plan > 0 ? " onto so many ranks" : ""));
  }
  spec.convert.memory_bytes = memory - plan;
  return absl::OkStatus();
}

absl::Status SetSource(const v1::Source& source, const Client& client,
                       JobSpec& spec) {
  DCP_ASSIGN_OR_RETURN(SourceSpec from, SourceFromProto(source, "source"));
  absl::StatusOr<std::string> path = client.CheckRead(from.path);
  if (!path.ok()) return BlameField(path.status(), "source.path");
  spec.source = *std::move(path);
  spec.convert.open = from.open;
  if (from.map == nullptr) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(MapSpec map, MapFromProto(*from.map, "source.map"));
  spec.convert.open.map = std::make_shared<const MapSpec>(std::move(map));
  return absl::OkStatus();
}

absl::Status SetDestination(const v1::Destination& destination,
                            const Client& client, JobSpec& spec) {
  if (destination.path().empty()) {
    return InvalidField("destination.path", " is missing");
  }
  absl::StatusOr<std::string> path = client.CheckWrite(destination.path());
  if (!path.ok()) return BlameField(path.status(), "destination.path");
  spec.destination = *std::move(path);
  spec.convert.writer = "a job of dcp-server";
  return absl::OkStatus();
}

template <typename Request>
absl::Status SetShare(const Request& request, JobSpec& spec) {
  if (!request.has_share()) return absl::OkStatus();
  const v1::Share& share = request.share();
  if (share.index() >= share.count()) {
    return InvalidField(
        "share.index",
        absl::StrCat(" is ", share.index(),
                     ": must be below share.count, which is ", share.count()));
  }
  spec.share = Share{.index = share.index(), .count = share.count()};
  return absl::OkStatus();
}

// Every request that writes.
template <typename Request>
absl::Status Read(const Request& request, const Client& client, JobSpec& spec) {
  DCP_RETURN_IF_ERROR(SetSource(request.source(), client, spec));
  DCP_RETURN_IF_ERROR(SetDestination(request.destination(), client, spec));
  DCP_ASSIGN_OR_RETURN(ConvertSpec made, ConvertSpecFromProto(request));
  made.open = std::move(spec.convert.open);
  static_cast<ConvertSpec&>(spec.convert) = std::move(made);
  spec.options = request.options();
  return SetShare(request, spec);
}

absl::Status Read(const v1::VerifyRequest& request, const Client& client,
                  JobSpec& spec) {
  DCP_RETURN_IF_ERROR(CheckUnmapped(request.source(), "source"));
  DCP_RETURN_IF_ERROR(SetSource(request.source(), client, spec));
  DCP_ASSIGN_OR_RETURN(
      spec.sample_percent,
      SamplePercentFromProto(request.sample_percent(), "sample_percent"));
  spec.options = request.options();
  return absl::OkStatus();
}

// Restores the decisions from the time when the job was submitted: where links
// led then, and how much memory the server gave it.
template <typename Request>
void KeepDecisions(const JobRequest& submitted, Request& request) {
  request.mutable_source()->set_path(submitted.source);
  if constexpr (requires { request.mutable_destination(); }) {
    request.mutable_destination()->set_path(submitted.destination);
  }
  request.mutable_options()->set_memory_bytes(submitted.memory_bytes);
}

// `submitted` is null while the job is being submitted.
template <typename Request>
absl::StatusOr<JobSpec> ReadAs(const std::string& bytes, const Client& client,
                               const ServerOptions& server,
                               const JobRequest* submitted) {
  Request request;
  if (!request.ParseFromString(bytes)) {
    return WithReason(absl::InvalidArgumentError("the request is malformed"),
                      ErrorReason::INVALID_REQUEST);
  }
  if (submitted != nullptr) KeepDecisions(*submitted, request);
  if (submitted == nullptr) {
    DCP_RETURN_IF_ERROR(CheckRequestId(request.options()));
  }
  JobSpec spec;
  DCP_RETURN_IF_ERROR(Read(request, client, spec));
  DCP_RETURN_IF_ERROR(SetMemory(server, spec));
  return spec;
}

absl::StatusOr<JobSpec> ReadOfKind(JobKind kind, const std::string& bytes,
                                   const Client& client,
                                   const ServerOptions& server,
                                   const JobRequest* submitted) {
  switch (kind) {
    case JobMetadata::CONVERT:
      return ReadAs<v1::ConvertRequest>(bytes, client, server, submitted);
    case JobMetadata::RESHARD:
      return ReadAs<v1::ReshardRequest>(bytes, client, server, submitted);
    case JobMetadata::CONSOLIDATE:
      return ReadAs<v1::ConsolidateRequest>(bytes, client, server, submitted);
    case JobMetadata::VERIFY:
      return ReadAs<v1::VerifyRequest>(bytes, client, server, submitted);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("job kind ", static_cast<int>(kind), " is unknown"));
  }
}

}  // namespace

absl::StatusOr<JobSpec> ReadRequest(JobKind kind, const std::string& bytes,
                                    const Client& client,
                                    const ServerOptions& server) {
  return ReadOfKind(kind, bytes, client, server, /*submitted=*/nullptr);
}

absl::StatusOr<JobSpec> ReadAgain(const JobRequest& request,
                                  const Client& client,
                                  const ServerOptions& server) {
  DCP_ASSIGN_OR_RETURN(JobSpec spec, ReadOfKind(request.kind, request.bytes,
                                                client, server, &request));
  // Other jobs identify this job by the destination that it had when it was
  // submitted.
  if (spec.destination == request.destination) return spec;
  return WithReason(
      WithPlace(absl::FailedPreconditionError(absl::StrCat(
                    "destination ", request.destination, " leads to ",
                    spec.destination, " since the job was submitted")),
                {.path = request.destination}),
      ErrorReason::DESTINATION_MOVED);
}

}  // namespace dcp::server
