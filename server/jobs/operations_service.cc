// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/operations_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "grpcpp/alarm.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "proto/rpc_time.h"
#include "server/jobs/job_filter.h"
#include "server/jobs/job_watch.h"
#include "server/process/task_queue.h"
#include "server/transport/call_log.h"
#include "server/transport/compression.h"

namespace dcp::server {
namespace {

using google::longrunning::Operation;

// Longer waits are cut to this; nobody keeps a call open for so long.
constexpr absl::Duration kMaxWait = absl::Hours(24 * 30);

// A request's timeout. It comes as a google.protobuf.Duration, and the fields
// may have any values.
absl::StatusOr<std::optional<absl::Duration>> WaitTimeout(
    const google::longrunning::WaitOperationRequest& request) {
  if (!request.has_timeout()) return std::optional<absl::Duration>();
  const absl::Duration timeout = absl::Seconds(request.timeout().seconds()) +
                                 absl::Nanoseconds(request.timeout().nanos());
  if (timeout < absl::ZeroDuration()) {
    return InvalidField("timeout",
                        absl::StrCat(" is ", absl::FormatDuration(timeout),
                                     ": it must not be negative"));
  }
  return std::optional<absl::Duration>(std::min(timeout, kMaxWait));
}

// The journal is on a disk, and a list may have a thousand jobs.
constexpr TaskQueue::Limits kTasks = {
    .num_threads = 3, .per_client = 2, .max_waiting = 1000};

class WaitReactor final : public grpc::ServerUnaryReactor {
 public:
  WaitReactor(JobManager& manager, const Client& client, std::string name,
              Operation* response)
      : manager_(manager),
        client_(client),
        name_(std::move(name)),
        response_(response) {}

  void Begin(std::optional<absl::Duration> timeout) {
    if (timeout.has_value()) end_ = SteadyNow() + *timeout;
    const absl::Status status = JobWatch::Begin(
        manager_, client_, name_, [this](bool cancelled) { Look(cancelled); },
        watch_);
    if (!status.ok()) return Finish(ToRpcStatus(status));
    if (!timeout.has_value()) return;
    alarm_.Set(RpcTimeIn(*timeout),
               [weak = std::weak_ptr<JobWatch>(watch_), over = over_](bool) {
                 *over = true;
                 const std::shared_ptr<JobWatch> alive = weak.lock();
                 if (alive != nullptr) alive->Wake();
               });
  }

 private:
  void Look(bool cancelled) {
    if (cancelled) return Finish(grpc::Status::CANCELLED);
    // Evaluated before the job is read, so that the answer includes a job that
    // ends in between.
    const bool over = *over_ || SteadyNow() >= end_ || manager_.draining();
    absl::StatusOr<Operation> now = manager_.Get(client_, name_);
    if (now.ok() && !now->done() && !over) return watch_->Continue();
    if (now.ok()) *response_ = *std::move(now);
    Finish(ToRpcStatus(now.status()));
  }

  void OnCancel() override {
    if (watch_ != nullptr) watch_->Cancel();
  }

  void OnDone() override {
    if (watch_ != nullptr) watch_->End();
    delete this;
  }

  JobManager& manager_;
  const Client& client_;
  const std::string name_;
  Operation* const response_;
  std::shared_ptr<JobWatch> watch_;
  absl::Duration end_ = absl::InfiniteDuration();
  // The alarm has fired; alarms may use another clock than absl::Now. Owners:
  // this and the alarm.
  const std::shared_ptr<std::atomic<bool>> over_ =
      std::make_shared<std::atomic<bool>>(false);
  grpc::Alarm alarm_;
};

}  // namespace

OperationsService::OperationsService(JobManager& manager, Admission& admission)
    : manager_(manager), admission_(admission), tasks_(kTasks) {}

grpc::ServerUnaryReactor* OperationsService::Answer(
    grpc::CallbackServerContext& context, Work work) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  const absl::StatusOr<Admission::Caller> caller = admission_.Admit(context);
  absl::Status posted = caller.status();
  if (caller.ok()) {
    posted = tasks_.Post(
        caller->account->name(),
        [reactor, client = caller->client, work = std::move(work)]() mutable {
          reactor->Finish(ToRpcStatus(work(*client)));
        });
  }
  if (!posted.ok()) reactor->Finish(ToRpcStatus(posted));
  return reactor;
}

grpc::ServerUnaryReactor* OperationsService::ListOperations(
    grpc::CallbackServerContext* context,
    const google::longrunning::ListOperationsRequest* request,
    google::longrunning::ListOperationsResponse* response) {
  CompressIfAsked(*context);
  return Answer(
      *context,
      [this, request, response](const Client& client) -> absl::Status {
        if (!request->name().empty() && request->name() != "operations") {
          return InvalidField("name", " must be 'operations', or empty");
        }
        DCP_ASSIGN_OR_RETURN(const JobFilter filter,
                             JobFilter::Parse(request->filter()));
        DCP_ASSIGN_OR_RETURN(JobPage page,
                             manager_.List(client, filter, request->page_size(),
                                           request->page_token()));
        for (Operation& operation : page.operations) {
          *response->add_operations() = std::move(operation);
        }
        response->set_next_page_token(page.next_page_token);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* OperationsService::GetOperation(
    grpc::CallbackServerContext* context,
    const google::longrunning::GetOperationRequest* request,
    Operation* response) {
  CompressIfAsked(*context);
  return Answer(
      *context,
      [this, request, response](const Client& client) -> absl::Status {
        DCP_ASSIGN_OR_RETURN(*response, manager_.Get(client, request->name()));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* OperationsService::DeleteOperation(
    grpc::CallbackServerContext* context,
    const google::longrunning::DeleteOperationRequest* request,
    google::protobuf::Empty*) {
  return Answer(*context, [this, request](const Client& client) {
    return manager_.Delete(client, request->name());
  });
}

grpc::ServerUnaryReactor* OperationsService::CancelOperation(
    grpc::CallbackServerContext* context,
    const google::longrunning::CancelOperationRequest* request,
    google::protobuf::Empty*) {
  return Answer(*context,
                [this, request, call = CallId(*context)](const Client& client) {
                  return manager_.Cancel(client, request->name(), call);
                });
}

grpc::ServerUnaryReactor* OperationsService::WaitOperation(
    grpc::CallbackServerContext* context,
    const google::longrunning::WaitOperationRequest* request,
    Operation* response) {
  CompressIfAsked(*context);
  const absl::StatusOr<Admission::Caller> caller = admission_.Admit(*context);
  const absl::StatusOr<std::optional<absl::Duration>> timeout =
      WaitTimeout(*request);
  if (!caller.ok() || !timeout.ok()) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(
        ToRpcStatus(caller.ok() ? timeout.status() : caller.status()));
    return reactor;
  }
  auto* const reactor =
      new WaitReactor(manager_, *caller->client, request->name(), response);
  reactor->Begin(*timeout);
  return reactor;
}

}  // namespace dcp::server
