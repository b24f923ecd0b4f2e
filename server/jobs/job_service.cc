// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_service.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "proto/messages/request_messages.h"
#include "proto/rpc_status.h"
#include "server/access/disk_timeout.h"
#include "server/jobs/job_watch.h"
#include "server/process/refusal.h"
#include "server/transport/call_log.h"
#include "server/transport/unary_call.h"

namespace dcp::server {
namespace {

using google::longrunning::Operation;

// The minimum time between updates to a client; a little less than the second
// in which JobManager ticks, so that no tick is missed.
constexpr absl::Duration kMinWatchPeriod = absl::Milliseconds(900);

// Threads per root that check requests. A check takes a few accesses to the
// disk, and for a large request a second.
constexpr TaskQueue::Limits kCheckers = {
    .num_threads = 3, .per_client = 2, .max_waiting = 1000};

// A request's destination; for a verification, the source.
template <typename Request>
const std::string& DestinationPath(const Request& request) {
  if constexpr (requires { request.destination(); }) {
    return request.destination().path();
  } else {
    return request.source().path();
  }
}

class WatchReactor final : public grpc::ServerWriteReactor<Operation> {
 public:
  WatchReactor(JobManager& manager, const Client& client, std::string name)
      : manager_(manager), client_(client), name_(std::move(name)) {}

  void Begin() {
    const absl::Status status = JobWatch::Begin(
        manager_, client_, name_, [this](bool cancelled) { Look(cancelled); },
        watch_);
    if (!status.ok()) Finish(ToRpcStatus(status));
  }

 private:
  void Look(bool cancelled) {
    if (cancelled) return Finish(grpc::Status::CANCELLED);
    absl::StatusOr<Operation> now = manager_.Get(client_, name_);
    if (!now.ok()) return Finish(ToRpcStatus(now.status()));
    const absl::Duration time = SteadyNow();
    // For a running job, the next look comes within a second.
    if (!now->done() && time - written_ < kMinWatchPeriod &&
        !manager_.draining()) {
      return watch_->Continue();
    }
    written_ = time;
    operation_ = *std::move(now);
    StartWrite(&operation_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    if (operation_.done()) return Finish(grpc::Status::OK);
    if (manager_.draining()) {
      return Finish(ToRpcStatus(ServerDraining()));
    }
    watch_->Continue();
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
  std::shared_ptr<JobWatch> watch_;
  Operation operation_;                            // being written
  absl::Duration written_ = absl::ZeroDuration();  // a time of SteadyNow
};

class RefusingReactor final : public grpc::ServerWriteReactor<Operation> {
 public:
  explicit RefusingReactor(const absl::Status& status) {
    Finish(ToRpcStatus(status));
  }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

JobService::JobService(JobManager& manager, const JobRunner& runner,
                       Admission& admission, absl::Duration disk_timeout)
    : manager_(manager),
      runner_(runner),
      admission_(admission),
      disk_timeout_(disk_timeout),
      checkers_(admission.access(), kCheckers) {}

grpc::ServerUnaryReactor* JobService::Convert(
    grpc::CallbackServerContext* context,
    const tessera::v1::ConvertRequest* request, Operation* response) {
  return Start(context, JobMetadata::CONVERT, *request, response);
}

grpc::ServerUnaryReactor* JobService::Reshard(
    grpc::CallbackServerContext* context,
    const tessera::v1::ReshardRequest* request, Operation* response) {
  return Start(context, JobMetadata::RESHARD, *request, response);
}

grpc::ServerUnaryReactor* JobService::Consolidate(
    grpc::CallbackServerContext* context,
    const tessera::v1::ConsolidateRequest* request, Operation* response) {
  return Start(context, JobMetadata::CONSOLIDATE, *request, response);
}

grpc::ServerUnaryReactor* JobService::Verify(
    grpc::CallbackServerContext* context,
    const tessera::v1::VerifyRequest* request, Operation* response) {
  return Start(context, JobMetadata::VERIFY, *request, response);
}

template <typename Request>
grpc::ServerUnaryReactor* JobService::Start(
    grpc::CallbackServerContext* context, JobKind kind, const Request& request,
    Operation* response) {
  auto* const reactor = new UnaryCall();  // ends itself
  const absl::StatusOr<Admission::Caller> caller = admission_.Admit(*context);
  if (!caller.ok()) {
    reactor->Finish(ToRpcStatus(caller.status()));
    return reactor;
  }
  const Client& client = *caller->client;
  const auto finish = [reactor, response](absl::StatusOr<Operation> operation) {
    if (operation.ok()) *response = *std::move(operation);
    reactor->Finish(ToRpcStatus(operation.status()));
  };
  const std::string& source = request.source().path();
  CheckSource(std::make_shared<const Asked>(Asked{
      .kind = kind,
      .client = &client,
      .caller = caller->account->name(),
      // Not a copy of the message, which takes this thread of gRPC much longer.
      .request = StableBytes(request),
      .call = CallId(*context),
      .validate_only = request.options().validate_only(),
      .gone = reactor->stop(),
      .source = source,
      .destination = DestinationPath(request),
      .answer = Answer::Start(disk_timeout_,
                              DiskTimeoutError(client, source, disk_timeout_),
                              finish)}));
  return reactor;
}

// A source whose root hangs must not block a thread of the destination's root,
// so a thread of the source's root accesses the source first.
void JobService::CheckSource(const std::shared_ptr<const Asked>& asked) {
  TaskQueue& of_source = *checkers_.QueueFor(*asked->client, asked->source);
  TaskQueue& of_destination =
      *checkers_.QueueFor(*asked->client, asked->destination);
  const auto post = [asked](TaskQueue& threads, auto task) {
    const absl::Status posted = threads.Post(asked->caller, [asked, task] {
      // Nobody waits for the plan. A job is started all the same: the client
      // finds it by the id of the request.
      if (asked->validate_only && asked->gone.stop_requested()) {
        asked->answer->Give(absl::CancelledError("the caller is gone"));
      }
      if (!asked->answer->given()) task();
    });
    if (!posted.ok()) {
      asked->answer->Give(WithRetryAfter(posted, kRetryAfterMs));
    }
  };
  const auto start = [this, asked] { CheckAndStart(asked); };
  if (&of_source == &of_destination) return post(of_source, start);
  post(of_source, [post, asked, start, &of_destination] {
    // The result does not matter: CheckAndStart checks the path again.
    asked->client->CheckRead(asked->source).IgnoreError();
    post(of_destination, start);
  });
}

void JobService::CheckAndStart(const std::shared_ptr<const Asked>& asked) {
  absl::StatusOr<JobRequest> job =
      runner_.Check(asked->kind, asked->request, *asked->client);
  if (!job.ok()) return asked->answer->Give(job.status());
  job->call = asked->call;
  if (asked->validate_only) {
    const absl::Status planning = manager_.Plan(
        *asked->client, *std::move(job), asked->gone,
        [answer = asked->answer](absl::StatusOr<Operation> operation) {
          answer->Give(std::move(operation));
        });
    if (!planning.ok()) asked->answer->Give(planning);
    return;
  }
  // Do not start a job if the client was told that it was not started.
  Answer::Answered finish = asked->answer->Take();
  if (finish != nullptr)
    finish(manager_.Submit(*asked->client, *std::move(job)));
}

grpc::ServerWriteReactor<Operation>* JobService::WatchJob(
    grpc::CallbackServerContext* context,
    const tessera::v1::WatchJobRequest* request) {
  const absl::StatusOr<Admission::Caller> caller = admission_.Admit(*context);
  if (!caller.ok()) return new RefusingReactor(caller.status());
  auto* const reactor =
      new WatchReactor(manager_, *caller->client, request->name());
  reactor->Begin();
  return reactor;
}

}  // namespace dcp::server
