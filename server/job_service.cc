#include "server/job_service.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/status.h"
#include "proto/rpc_status.h"
#include "server/job_watch.h"
#include "server/refusal.h"

namespace dcp::server {
namespace {

using google::longrunning::Operation;

// A client hears of a job at most so often; a little less than the second in
// which JobManager ticks, so that no tick is missed.
constexpr absl::Duration kMinWatchPeriod = absl::Milliseconds(900);

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
    const absl::Time time = absl::Now();
    // A job that runs is looked at again within a second.
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
  Operation operation_;  // being written
  absl::Time written_ = absl::InfinitePast();
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

grpc::ServerUnaryReactor* JobService::Convert(
    grpc::CallbackServerContext* context,
    const tessera::v1::ConvertRequest* request, Operation* response) {
  return Start(context, JobMetadata::CONVERT, *request,
               request->options().validate_only(), response);
}

grpc::ServerUnaryReactor* JobService::Reshard(
    grpc::CallbackServerContext* context,
    const tessera::v1::ReshardRequest* request, Operation* response) {
  return Start(context, JobMetadata::RESHARD, *request,
               request->options().validate_only(), response);
}

grpc::ServerUnaryReactor* JobService::Consolidate(
    grpc::CallbackServerContext* context,
    const tessera::v1::ConsolidateRequest* request, Operation* response) {
  return Start(context, JobMetadata::CONSOLIDATE, *request,
               request->options().validate_only(), response);
}

grpc::ServerUnaryReactor* JobService::Verify(
    grpc::CallbackServerContext* context,
    const tessera::v1::VerifyRequest* request, Operation* response) {
  return Start(context, JobMetadata::VERIFY, *request,
               request->options().validate_only(), response);
}

grpc::ServerUnaryReactor* JobService::Start(
    grpc::CallbackServerContext* context, JobKind kind,
    const google::protobuf::Message& request, bool validate_only,
    Operation* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const auto finish = [reactor, response](absl::StatusOr<Operation> operation) {
    if (operation.ok()) *response = *std::move(operation);
    reactor->Finish(ToRpcStatus(operation.status()));
  };
  const absl::StatusOr<const Client*> client = access_.Authenticate(*context);
  if (!client.ok()) {
    finish(client.status());
    return reactor;
  }
  absl::StatusOr<JobRequest> job = runner_.Check(kind, request, **client);
  if (!job.ok()) {
    finish(job.status());
  } else if (validate_only) {
    const absl::Status planning =
        manager_.Plan(**client, *std::move(job), finish);
    if (!planning.ok()) finish(planning);
  } else {
    finish(manager_.Submit(**client, *std::move(job)));
  }
  return reactor;
}

grpc::ServerWriteReactor<Operation>* JobService::WatchJob(
    grpc::CallbackServerContext* context,
    const tessera::v1::WatchJobRequest* request) {
  const absl::StatusOr<const Client*> client = access_.Authenticate(*context);
  if (!client.ok()) {
    return new RefusingReactor(client.status());
  }
  auto* const reactor = new WatchReactor(manager_, **client, request->name());
  reactor->Begin();
  return reactor;
}

}  // namespace dcp::server
