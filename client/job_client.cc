// SPDX-License-Identifier: Apache-2.0

#include "client/job_client.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/backoff.h"
#include "client/request_id.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "proto/rpc_status.h"

namespace dcp::client {
namespace {

namespace v1 = tessera::v1;
namespace lro = google::longrunning;

// Limit of one WaitOperation: the server answers after it, done or not, so that
// a connection that died silently is noticed.
constexpr int64_t kWaitSeconds = 60;

// Starts a job under the request's id, the same one in each attempt.
template <typename Request, typename Method>
absl::StatusOr<Job> Submit(const Channel& channel, v1::JobService::Stub& stub,
                           const char* call, Request& request, Method method,
                           const CallOptions& options) {
  if (request.options().request_id().empty()) {
    request.mutable_options()->set_request_id(NewRequestId());
  }
  lro::Operation operation;
  DCP_RETURN_IF_ERROR(
      channel.Call(call, options, [&](grpc::ClientContext& context) {
        return (stub.*method)(&context, request, &operation);
      }));
  return JobFrom(operation);
}

}  // namespace

absl::StatusOr<Job> JobFrom(const lro::Operation& operation) {
  Job job;
  job.name = operation.name();
  job.done = operation.done();
  const auto malformed = [&](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat("operation '", operation.name(), "' ", what));
  };
  if (operation.has_metadata() &&
      !operation.metadata().UnpackTo(&job.metadata)) {
    return malformed("is not a job's");
  }
  if (!operation.done()) return job;
  if (operation.has_error()) {
    std::string details;
    operation.error().SerializeToString(&details);
    job.status = FromRpcStatus(
        grpc::Status(static_cast<grpc::StatusCode>(operation.error().code()),
                     operation.error().message(), details),
        v1::JobMetadata::Kind_Name(job.metadata.kind()));
    return job.status.ok() ? malformed("has an error without a code")
                           : absl::StatusOr<Job>(std::move(job));
  }
  const google::protobuf::Any& response = operation.response();
  if (response.Is<v1::ConvertResult>()) {
    if (response.UnpackTo(&job.converted.emplace())) return job;
  } else if (response.Is<v1::VerifyReport>()) {
    if (response.UnpackTo(&job.verified.emplace())) return job;
  }
  return malformed("ended without a result of a kind that this client knows");
}

JobClient::JobClient(std::shared_ptr<const Channel> channel)
    : channel_(std::move(channel)),
      jobs_(v1::JobService::NewStub(channel_->grpc_channel())),
      operations_(lro::Operations::NewStub(channel_->grpc_channel())) {}

absl::StatusOr<Job> JobClient::Convert(v1::ConvertRequest request,
                                       const CallOptions& options) {
  return Submit(*channel_, *jobs_, "Convert", request,
                &v1::JobService::Stub::Convert, options);
}

absl::StatusOr<Job> JobClient::Reshard(v1::ReshardRequest request,
                                       const CallOptions& options) {
  return Submit(*channel_, *jobs_, "Reshard", request,
                &v1::JobService::Stub::Reshard, options);
}

absl::StatusOr<Job> JobClient::Consolidate(v1::ConsolidateRequest request,
                                           const CallOptions& options) {
  return Submit(*channel_, *jobs_, "Consolidate", request,
                &v1::JobService::Stub::Consolidate, options);
}

absl::StatusOr<Job> JobClient::Verify(v1::VerifyRequest request,
                                      const CallOptions& options) {
  return Submit(*channel_, *jobs_, "Verify", request,
                &v1::JobService::Stub::Verify, options);
}

absl::StatusOr<Job> JobClient::Get(const std::string& name,
                                   const CallOptions& options) {
  lro::GetOperationRequest request;
  request.set_name(name);
  lro::Operation operation;
  DCP_RETURN_IF_ERROR(channel_->Call(
      "GetOperation", options, [&](grpc::ClientContext& context) {
        return operations_->GetOperation(&context, request, &operation);
      }));
  return JobFrom(operation);
}

absl::StatusOr<JobPage> JobClient::List(const std::string& filter,
                                        int page_size,
                                        const std::string& page_token,
                                        const CallOptions& options) {
  lro::ListOperationsRequest request;
  request.set_name("operations");
  request.set_filter(filter);
  request.set_page_size(page_size);
  request.set_page_token(page_token);
  lro::ListOperationsResponse response;
  DCP_RETURN_IF_ERROR(channel_->Call(
      "ListOperations", options, [&](grpc::ClientContext& context) {
        return operations_->ListOperations(&context, request, &response);
      }));
  JobPage page{.jobs = {}, .next_page_token = response.next_page_token()};
  for (const lro::Operation& operation : response.operations()) {
    DCP_ASSIGN_OR_RETURN(page.jobs.emplace_back(), JobFrom(operation));
  }
  return page;
}

absl::StatusOr<std::vector<Job>> JobClient::ListAll(
    const std::string& filter, const CallOptions& options) {
  std::vector<Job> jobs;
  std::string token;
  int num_restarts = 0;
  while (true) {
    absl::StatusOr<JobPage> page = List(filter, 0, token, options);
    if (!token.empty() && IsPageTokenRefused(page.status()) &&
        num_restarts++ < kMaxListRestarts) {
      jobs.clear();
      token.clear();
      continue;
    }
    DCP_RETURN_IF_ERROR(page.status());
    std::move(page->jobs.begin(), page->jobs.end(), std::back_inserter(jobs));
    if (page->next_page_token.empty()) return jobs;
    if (page->next_page_token == token) {
      return absl::DataLossError(
          "ListOperations: the server sent the same page twice");
    }
    token = std::move(page->next_page_token);
  }
}

absl::StatusOr<Job> JobClient::Wait(const std::string& name,
                                    const CallOptions& options) {
  const absl::Duration end = SteadyNow() + options.timeout;
  lro::WaitOperationRequest request;
  request.set_name(name);
  request.mutable_timeout()->set_seconds(kWaitSeconds);
  lro::Operation operation;
  while (!operation.done()) {
    DCP_RETURN_IF_ERROR(channel_->Call(
        "WaitOperation", {.timeout = end - SteadyNow(), .stop = options.stop},
        [&](grpc::ClientContext& context) {
          return operations_->WaitOperation(&context, request, &operation);
        }));
  }
  return JobFrom(operation);
}

absl::StatusOr<Job> JobClient::Watch(
    const std::string& name, absl::FunctionRef<void(const Job&)> on_change,
    const CallOptions& options) {
  const absl::Duration end = SteadyNow() + options.timeout;
  Backoff backoff = channel_->NewBackoff(end, options.stop);
  v1::WatchJobRequest request;
  request.set_name(name);
  while (true) {
    absl::StatusOr<Job> last =
        absl::UnavailableError("WatchJob: the stream ended before the job did");
    const absl::Status status = channel_->Attempt(
        "WatchJob", end, options.stop, [&](grpc::ClientContext& context) {
          auto reader = jobs_->WatchJob(&context, request);
          lro::Operation operation;
          while (reader->Read(&operation)) {
            backoff.Reset();
            last = JobFrom(operation);
            if (!last.ok()) {
              context.TryCancel();
              break;
            }
            on_change(*last);
          }
          return reader->Finish();
        });
    if (last.ok() && last->done) return last;
    if (absl::IsDataLoss(last.status())) return last.status();
    DCP_RETURN_IF_ERROR(backoff.Wait(
        !status.ok() ? status
                     : absl::UnavailableError(
                           "WatchJob: the stream ended before the job did")));
  }
}

absl::Status JobClient::Cancel(const std::string& name,
                               const CallOptions& options) {
  lro::CancelOperationRequest request;
  request.set_name(name);
  google::protobuf::Empty response;
  return channel_->Call(
      "CancelOperation", options, [&](grpc::ClientContext& context) {
        return operations_->CancelOperation(&context, request, &response);
      });
}

absl::Status JobClient::Delete(const std::string& name,
                               const CallOptions& options) {
  lro::DeleteOperationRequest request;
  request.set_name(name);
  google::protobuf::Empty response;
  return channel_->Call(
      "DeleteOperation", options, [&](grpc::ClientContext& context) {
        return operations_->DeleteOperation(&context, request, &response);
      });
}

}  // namespace dcp::client
