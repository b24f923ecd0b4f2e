// SPDX-License-Identifier: Apache-2.0

#include "tests/server/jobs/job_server.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/steady_time.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify/verify.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"
#include "proto/rpc_status.h"
#include "server/memory/memory_shares.h"
#include "tests/testing/sample_state.h"

namespace dcp::server {

using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;

void MakeCheckpoint(const std::string& path, int64_t num_files,
                    uint64_t num_bytes, uint64_t seed) {
  const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
  constexpr uint64_t kNumTensors = 4;
  const auto columns = static_cast<int64_t>(
      num_bytes / kNumTensors / 4 / static_cast<uint64_t>(num_files * 4));
  SampleState state;
  for (uint64_t i = 0; i < kNumTensors; ++i) {
    state.Add(SampleTensor(absl::StrCat("weight.", i), DType::kFloat32,
                           {num_files * 4, columns}, seed));
  }
  state.Add(SampleTensor("scalar", DType::kInt64, {}, seed));
  std::filesystem::create_directories(ParentDirectory(path));
  SingleProcessCoordinator coordinator;
  const std::string whole = path + ".whole";
  absl::Status status = Save(*fs, whole, state.state(), coordinator,
                             {.memory_bytes = kMinMemoryBytes});
  DCP_CHECK(status.ok(), status.ToString());
  ConvertOptions options;
  options.mesh = *ParseMesh(absl::StrCat("shard=", num_files));
  status = ConvertCheckpoint(*fs, whole, path, std::move(options)).status();
  DCP_CHECK(status.ok(), status.ToString());
  std::filesystem::remove_all(whole);
}

absl::Status CompareCheckpoints(const std::string& a, const std::string& b) {
  const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
  DiffOptions options;
  options.memory_bytes = kMinMemoryBytes;
  const auto diff = DiffCheckpoints(*fs, a, b, std::move(options));
  if (!diff.ok()) return diff.status();
  if (!diff->findings.empty()) {
    return absl::DataLossError(diff->findings[0].name + " differs");
  }
  const auto report = VerifyCheckpoint(*fs, b, {});
  if (!report.ok()) return report.status();
  if (!report->findings.empty()) {
    return absl::DataLossError(report->findings[0].problem);
  }
  return absl::OkStatus();
}

std::string ListFiles(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(path)) {
    // Links are listed, not followed.
    names.push_back(entry.path().lexically_relative(path).string());
  }
  std::sort(names.begin(), names.end());
  return absl::StrJoin(names, "\n");
}

JobServer::JobServer(const std::string& directory, Settings settings)
    : JobClient(directory), options_(std::move(settings.options)) {
  std::filesystem::create_directories(data(""));
  options_.roots = {{.path = data(""), .writable = true}};
  options_.state_dir = directory_ + "/state";
  if (!settings.tokens.empty()) {
    options_.tokens_file = directory_ + "/tokens";
    const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
    std::filesystem::remove(options_.tokens_file);
    DCP_CHECK(WriteFile(*fs, options_.tokens_file, settings.tokens).ok());
  }
  auto access = Access::Load(options_.roots, options_.tokens_file);
  DCP_CHECK(access.ok(), access.status().ToString());
  access_ = std::make_unique<Access>(*std::move(access));
  admission_ = std::make_unique<Admission>(
      *access_,
      ClientLimits{.num_streams = StreamsPerClient(options_),
                   .memory_bytes = ClientMemoryBytes(options_),
                   .requests_per_second = options_.max_requests_per_second});
  budget_ = std::make_unique<MemoryBudget>(
      options_.max_memory_bytes,
      DivideMemory(options_.max_memory_bytes, options_.num_readers)
          .calls_bytes);
  if (settings.hold_memory) {
    const auto ticket = budget_->Request(
        MemoryUse::kCall, budget_->limit_bytes(),
        [this](Reservation memory) { held_memory_ = std::move(memory); });
    DCP_CHECK(ticket.ok() && held_memory_.bytes() > 0);
  }
  runner_ = std::make_unique<JobRunner>(fs_, *access_, options_);
  auto journal = JobJournal::Open(options_.state_dir);
  DCP_CHECK(journal.ok(), journal.status().ToString());
  journal_ = *std::move(journal);
  auto manager = JobManager::Start(*journal_, *runner_, *budget_, metrics_,
                                   options_, settings.log_step_bytes);
  DCP_CHECK(manager.ok(), manager.status().ToString());
  manager_ = *std::move(manager);
  job_service_ = std::make_unique<JobService>(*manager_, *runner_, *admission_,
                                              options_.disk_timeout);
  operations_service_ =
      std::make_unique<OperationsService>(*manager_, *admission_);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(settings.listen, grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(job_service_.get());
  builder.RegisterService(operations_service_.get());
  server_ = builder.BuildAndStart();
  DCP_CHECK(server_ != nullptr);
  address_ = port > 1 ? absl::StrCat("127.0.0.1:", port) : settings.listen;
  Connect(address_);
}

void JobServer::ReloadTokens(absl::string_view tokens) {
  const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
  std::filesystem::remove(options_.tokens_file);
  DCP_CHECK(WriteFile(*fs, options_.tokens_file, tokens).ok());
  const absl::Status reloaded = access_->Reload();
  DCP_CHECK(reloaded.ok(), reloaded.ToString());
  manager_->StopRevoked();
}

void JobServer::Stop(absl::Duration drain) {
  if (server_ == nullptr) return;
  manager_->Drain(SteadyNow() + drain);
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
  job_service_.reset();
  manager_.reset();
  journal_.reset();
}

void JobClient::Connect(const std::string& address) {
  // The channel does not share connections: others to the same address may have
  // failed.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments);
  jobs_ = tessera::v1::JobService::NewStub(channel);
  operations_ = google::longrunning::Operations::NewStub(channel);
}

std::string JobClient::data(absl::string_view name) const {
  return name.empty() ? directory_ + "/data"
                      : absl::StrCat(directory_, "/data/", name);
}

void JobClient::Prepare(grpc::ClientContext& context) const {
  if (!token_.empty()) {
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token_));
  }
}

tessera::v1::ConvertRequest JobClient::Request(
    absl::string_view destination) const {
  tessera::v1::ConvertRequest request;
  request.mutable_source()->set_path(data("source"));
  request.mutable_destination()->set_path(data(destination));
  request.mutable_options()->set_memory_bytes(kMinMemoryBytes);
  return request;
}

absl::StatusOr<Operation> JobClient::Convert(
    const tessera::v1::ConvertRequest& request) {
  grpc::ClientContext context;
  Prepare(context);
  Operation operation;
  const absl::Status status =
      FromRpcStatus(jobs_->Convert(&context, request, &operation), "Convert");
  if (!status.ok()) return status;
  return operation;
}

absl::StatusOr<Operation> JobClient::Get(const std::string& name) {
  grpc::ClientContext context;
  Prepare(context);
  google::longrunning::GetOperationRequest request;
  request.set_name(name);
  Operation operation;
  const absl::Status status = FromRpcStatus(
      operations_->GetOperation(&context, request, &operation), "Get");
  if (!status.ok()) return status;
  return operation;
}

absl::StatusOr<Operation> JobClient::Wait(
    const std::string& name, std::optional<absl::Duration> timeout) {
  grpc::ClientContext context;
  Prepare(context);
  google::longrunning::WaitOperationRequest request;
  request.set_name(name);
  if (timeout.has_value()) {
    const absl::Duration wait = *timeout;
    request.mutable_timeout()->set_seconds(absl::ToInt64Seconds(wait));
    request.mutable_timeout()->set_nanos(static_cast<int32_t>(
        absl::ToInt64Nanoseconds(wait % absl::Seconds(1))));
  }
  Operation operation;
  const absl::Status status = FromRpcStatus(
      operations_->WaitOperation(&context, request, &operation), "Wait");
  if (!status.ok()) return status;
  return operation;
}

absl::Status JobClient::Cancel(const std::string& name) {
  grpc::ClientContext context;
  Prepare(context);
  google::longrunning::CancelOperationRequest request;
  request.set_name(name);
  google::protobuf::Empty nothing;
  return FromRpcStatus(
      operations_->CancelOperation(&context, request, &nothing), "Cancel");
}

absl::Status JobClient::Delete(const std::string& name) {
  grpc::ClientContext context;
  Prepare(context);
  google::longrunning::DeleteOperationRequest request;
  request.set_name(name);
  google::protobuf::Empty nothing;
  return FromRpcStatus(
      operations_->DeleteOperation(&context, request, &nothing), "Delete");
}

absl::StatusOr<google::longrunning::ListOperationsResponse> JobClient::List(
    const std::string& filter, int page_size, const std::string& page_token) {
  grpc::ClientContext context;
  Prepare(context);
  google::longrunning::ListOperationsRequest request;
  request.set_name("operations");
  request.set_filter(filter);
  request.set_page_size(page_size);
  request.set_page_token(page_token);
  google::longrunning::ListOperationsResponse response;
  const absl::Status status = FromRpcStatus(
      operations_->ListOperations(&context, request, &response), "List");
  if (!status.ok()) return status;
  return response;
}

tessera::v1::JobMetadata MetadataOf(const Operation& operation) {
  tessera::v1::JobMetadata metadata;
  DCP_CHECK(operation.metadata().UnpackTo(&metadata));
  return metadata;
}

absl::Status ErrorOf(const Operation& operation) {
  return FromStatusProto(operation.error());
}

}  // namespace dcp::server
