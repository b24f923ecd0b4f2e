// SPDX-License-Identifier: Apache-2.0

#include "tests/client/fake_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/checksum.h"
#include "grpcpp/server_builder.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"

namespace dcp::client {
namespace {

namespace v1 = tessera::v1;
namespace lro = google::longrunning;

const grpc::Status kGone(grpc::StatusCode::UNAVAILABLE, "try again");

grpc::Status RefusedToken() {
  return ToRpcStatus(BlameField(absl::InvalidArgumentError("another run's"),
                                "page_token", ErrorReason::INVALID_PAGE_TOKEN));
}

}  // namespace

std::string FakeCheckpoints::authorization() const {
  absl::MutexLock lock(&mutex_);
  return authorization_;
}

void FakeCheckpoints::set_tamper(Tamper tamper) {
  absl::MutexLock lock(&mutex_);
  tamper_ = std::move(tamper);
}

grpc::Status FakeCheckpoints::Enter(grpc::ServerContext* context) {
  ++num_calls;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = context->client_metadata().find("authorization");
    authorization_ =
        found == context->client_metadata().end()
            ? ""
            : std::string(found->second.data(), found->second.size());
  }
  if (num_failures > 0) {
    --num_failures;
    return failure;
  }
  return grpc::Status::OK;
}

grpc::Status FakeCheckpoints::Inspect(grpc::ServerContext* context,
                                      const v1::InspectRequest* request,
                                      v1::InspectResponse* response) {
  const grpc::Status status = Enter(context);
  if (!status.ok()) return status;
  if (!request->page_token().empty() && num_refused_tokens > 0) {
    --num_refused_tokens;
    return RefusedToken();
  }
  const int page =
      request->page_token().empty() ? 0 : std::stoi(request->page_token());
  response->set_num_tensors(3);
  response->set_num_objects(3);
  response->add_tensors()->set_name(absl::StrCat("t", page));
  response->add_objects()->set_name(absl::StrCat("o", page));
  if (page < 2) response->set_next_page_token(absl::StrCat(page + 1));
  return grpc::Status::OK;
}

grpc::Status FakeCheckpoints::GetMetadata(
    grpc::ServerContext* context, const v1::GetMetadataRequest*,
    grpc::ServerWriter<v1::GetMetadataResponse>* writer) {
  v1::GetMetadataResponse response;
  response.set_data("meta");
  writer->Write(response);
  const grpc::Status status = Enter(context);
  if (!status.ok()) return status;
  response.set_data("data");
  writer->Write(response);
  return grpc::Status::OK;
}

grpc::Status FakeCheckpoints::ReadObjects(
    grpc::ServerContext* context, const v1::ReadObjectsRequest*,
    grpc::ServerWriter<v1::ReadObjectsResponse>* writer) {
  for (const char* name : {"a", "b"}) {
    v1::ReadObjectsResponse response;
    response.set_name(name);
    writer->Write(response);
  }
  return Enter(context);
}

grpc::Status FakeCheckpoints::Verify(
    grpc::ServerContext* context, const v1::VerifyCheckpointRequest*,
    grpc::ServerWriter<v1::VerifyCheckpointResponse>* writer) {
  const grpc::Status status = Enter(context);
  if (!status.ok()) return status;
  v1::VerifyCheckpointResponse response;
  response.mutable_progress()->set_bytes_done(1);
  writer->Write(response);
  if (!part_bytes.empty()) return grpc::Status::OK;
  response.mutable_report()->set_num_tensors(7);
  writer->Write(response);
  return grpc::Status::OK;
}

grpc::Status FakeCheckpoints::ReadTensors(
    grpc::ServerContext* context, const v1::ReadTensorsRequest* request,
    grpc::ServerWriter<Response>* writer) {
  const grpc::Status status = Enter(context);
  if (!status.ok()) return status;
  if (!request->etag().empty() && request->etag() != etag) {
    return {grpc::StatusCode::FAILED_PRECONDITION, "replaced"};
  }
  const uint64_t resume = request->resume_offset();
  Tamper tamper;
  {
    absl::MutexLock lock(&mutex_);
    tamper = tamper_;
  }
  Response header;
  header.mutable_header()->set_etag(etag);
  uint64_t end = 0;
  for (size_t i = 0; i < part_bytes.size(); ++i) {
    auto* part = header.mutable_header()->add_parts();
    part->set_name(part_name.empty() ? absl::StrCat("t", i) : part_name);
    part->set_num_bytes(part_bytes[i]);
    end += part_bytes[i];
  }
  header.mutable_header()->set_num_bytes(end);
  if (tamper && !tamper(header)) return grpc::Status::OK;
  writer->Write(header);
  uint64_t begin = 0;
  for (size_t i = 0; i < part_bytes.size(); ++i) {
    const uint64_t skipped =
        std::clamp<uint64_t>(resume, begin, begin + part_bytes[i]) - begin;
    for (uint64_t offset = skipped; offset < part_bytes[i];) {
      const uint64_t length = std::min(chunk_bytes, part_bytes[i] - offset);
      Response message;
      v1::ReadTensorsResponse::Chunk& chunk = *message.mutable_chunk();
      chunk.set_part(static_cast<uint32_t>(i));
      chunk.set_offset(offset);
      chunk.mutable_data()->resize(length);
      for (uint64_t b = 0; b < length; ++b) {
        (*chunk.mutable_data())[b] =
            static_cast<char>(FakeByte(begin + offset + b));
      }
      chunk.set_crc32c(ExtendCrc32c(0, AsBytes(chunk.data())));
      if (tamper && !tamper(message)) return grpc::Status::OK;
      if (!writer->Write(message)) return grpc::Status::CANCELLED;
      offset += length;
    }
    begin += part_bytes[i];
  }
  return grpc::Status::OK;
}

lro::Operation FakeOperation(const std::string& name,
                             v1::JobMetadata::State state) {
  lro::Operation operation;
  operation.set_name(name);
  v1::JobMetadata metadata;
  metadata.set_kind(v1::JobMetadata::RESHARD);
  metadata.set_state(state);
  operation.mutable_metadata()->PackFrom(metadata);
  if (state == v1::JobMetadata::SUCCEEDED) {
    v1::ConvertResult result;
    result.set_num_tensors(5);
    operation.set_done(true);
    operation.mutable_response()->PackFrom(result);
  } else if (state == v1::JobMetadata::FAILED) {
    operation.set_done(true);
    operation.mutable_error()->set_code(grpc::StatusCode::DATA_LOSS);
    operation.mutable_error()->set_message("torn");
  }
  return operation;
}

std::vector<std::string> FakeJobs::request_ids() const {
  absl::MutexLock lock(&mutex_);
  return request_ids_;
}

grpc::Status FakeJobs::Reshard(grpc::ServerContext*,
                               const v1::ReshardRequest* request,
                               lro::Operation* response) {
  {
    absl::MutexLock lock(&mutex_);
    request_ids_.push_back(request->options().request_id());
  }
  if (num_failures > 0) {
    --num_failures;
    return kGone;
  }
  *response = FakeOperation("operations/1", v1::JobMetadata::PENDING);
  return grpc::Status::OK;
}

grpc::Status FakeJobs::WatchJob(grpc::ServerContext*,
                                const v1::WatchJobRequest* request,
                                grpc::ServerWriter<lro::Operation>* writer) {
  if (request->name() != "operations/1") {
    return {grpc::StatusCode::NOT_FOUND, "no such job"};
  }
  if (num_failures > 0) {
    --num_failures;
    return kGone;
  }
  constexpr v1::JobMetadata::State kStates[] = {v1::JobMetadata::PENDING,
                                                v1::JobMetadata::RUNNING,
                                                v1::JobMetadata::SUCCEEDED};
  for (size_t i = static_cast<size_t>(cut_watches ? num_watches_++ : 0); i < 3;
       ++i) {
    writer->Write(FakeOperation(request->name(), kStates[i]));
    if (cut_watches) return kGone;
  }
  return grpc::Status::OK;
}

grpc::Status FakeOperations::GetOperation(
    grpc::ServerContext*, const lro::GetOperationRequest* request,
    lro::Operation* response) {
  if (request->name() == "operations/odd") {
    response->set_name(request->name());
    response->set_done(true);
    return grpc::Status::OK;
  }
  if (request->name() == "operations/failed") {
    *response = FakeOperation(request->name(), v1::JobMetadata::FAILED);
    return grpc::Status::OK;
  }
  return {grpc::StatusCode::NOT_FOUND, "no such job"};
}

grpc::Status FakeOperations::ListOperations(
    grpc::ServerContext*, const lro::ListOperationsRequest* request,
    lro::ListOperationsResponse* response) {
  const bool is_first = request->page_token().empty();
  if (!is_first && num_refused_tokens > 0) {
    --num_refused_tokens;
    return RefusedToken();
  }
  *response->add_operations() = FakeOperation(
      is_first ? "operations/1" : "operations/2", v1::JobMetadata::RUNNING);
  if (is_first) response->set_next_page_token("2");
  return grpc::Status::OK;
}

grpc::Status FakeOperations::WaitOperation(
    grpc::ServerContext*, const lro::WaitOperationRequest* request,
    lro::Operation* response) {
  if (hang) release.WaitForNotification();
  const bool early = num_early_waits > 0;
  if (early) --num_early_waits;
  *response =
      FakeOperation(request->name(), early ? v1::JobMetadata::RUNNING
                                           : v1::JobMetadata::SUCCEEDED);
  return grpc::Status::OK;
}

grpc::Status FakeOperations::CancelOperation(
    grpc::ServerContext*, const lro::CancelOperationRequest* request,
    google::protobuf::Empty*) {
  return request->name() == "operations/1"
             ? grpc::Status::OK
             : grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job");
}

FakeServer::FakeServer() {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&checkpoints);
  builder.RegisterService(&jobs);
  builder.RegisterService(&operations);
  server_ = builder.BuildAndStart();
  DCP_CHECK(server_ != nullptr);
  address_ = absl::StrCat("127.0.0.1:", port);
}

FakeServer::~FakeServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

std::shared_ptr<Channel> FakeServer::Connect(const std::string& address) const {
  ClientOptions options{.address = address};
  options.retry.first_wait = absl::Milliseconds(1);
  options.retry.max_retries = 200;
  options.retry.max_first_retries = 200;
  options.retry.max_wait = absl::Milliseconds(50);
  absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Open(options);
  DCP_CHECK(channel.ok(), channel.status().ToString());
  return *std::move(channel);
}

}  // namespace dcp::client
