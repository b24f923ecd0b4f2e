// SPDX-License-Identifier: Apache-2.0

#include "client/checkpoint_client.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/backoff.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"

namespace dcp::client {
namespace {

namespace v1 = tessera::v1;

// Equals the daemon's own limit on the metadata that it reads; bounds how much
// memory a dishonest server can make this process use.
constexpr size_t kMaxMetadataBytes = size_t{1} << 30;

// Reads a call that streams progress and ends with a report; returns the
// report.
template <typename Response, typename Report>
absl::StatusOr<Report> ReadReport(
    const Channel& channel, const char* call, const CallOptions& options,
    CheckpointClient::OnProgress on_progress,
    absl::FunctionRef<
        std::unique_ptr<grpc::ClientReader<Response>>(grpc::ClientContext&)>
        start) {
  Report report;
  bool reported = false;
  DCP_RETURN_IF_ERROR(
      channel.Call(call, options, [&](grpc::ClientContext& context) {
        auto reader = start(context);
        Response response;
        while (reader->Read(&response)) {
          if (response.has_progress()) on_progress(response.progress());
          if (!response.has_report()) continue;
          reported = true;
          report = std::move(*response.mutable_report());
        }
        return reader->Finish();
      }));
  if (reported) return report;
  return absl::DataLossError(
      absl::StrCat(call, ": the server ended the call without a report"));
}

}  // namespace

CheckpointClient::CheckpointClient(std::shared_ptr<const Channel> channel)
    : channel_(std::move(channel)),
      stub_(v1::CheckpointService::NewStub(channel_->grpc_channel())) {}

absl::StatusOr<v1::InspectResponse> CheckpointClient::InspectPage(
    const v1::InspectRequest& request, const CallOptions& options) {
  v1::InspectResponse response;
  DCP_RETURN_IF_ERROR(
      channel_->Call("Inspect", options, [&](grpc::ClientContext& context) {
        return stub_->Inspect(&context, request, &response);
      }));
  return response;
}

absl::StatusOr<v1::InspectResponse> CheckpointClient::Inspect(
    v1::InspectRequest request, const CallOptions& options) {
  const absl::Duration end = SteadyNow() + options.timeout;
  request.clear_page_token();
  v1::InspectResponse all;
  int num_restarts = 0;
  while (true) {
    const bool is_first = request.page_token().empty();
    absl::StatusOr<v1::InspectResponse> page = InspectPage(
        request, {.timeout = end - SteadyNow(), .stop = options.stop});
    if (!is_first && IsPageTokenRefused(page.status()) &&
        num_restarts++ < kMaxListRestarts) {
      request.clear_page_token();
      continue;
    }
    DCP_RETURN_IF_ERROR(page.status());
    if (!is_first && page->next_page_token() == request.page_token()) {
      return absl::DataLossError(
          "Inspect: the server sent the same page twice");
    }
    request.set_page_token(page->next_page_token());
    if (is_first) {
      all = *std::move(page);
    } else {
      std::move(
          page->mutable_tensors()->begin(), page->mutable_tensors()->end(),
          google::protobuf::RepeatedFieldBackInserter(all.mutable_tensors()));
      std::move(
          page->mutable_objects()->begin(), page->mutable_objects()->end(),
          google::protobuf::RepeatedFieldBackInserter(all.mutable_objects()));
    }
    if (request.page_token().empty()) break;
  }
  all.clear_next_page_token();
  return all;
}

absl::StatusOr<std::string> CheckpointClient::GetMetadata(
    const v1::Source& source, const CallOptions& options) {
  v1::GetMetadataRequest request;
  *request.mutable_source() = source;
  std::string metadata;
  bool too_long = false;
  const absl::Status status =
      channel_->Call("GetMetadata", options, [&](grpc::ClientContext& context) {
        metadata.clear();
        auto reader = stub_->GetMetadata(&context, request);
        v1::GetMetadataResponse response;
        while (!too_long && reader->Read(&response)) {
          metadata += response.data();
          too_long = metadata.size() > kMaxMetadataBytes;
          if (too_long) context.TryCancel();
        }
        return reader->Finish();
      });
  if (too_long) {
    return absl::DataLossError(
        absl::StrCat("GetMetadata: more than ", kMaxMetadataBytes, " bytes"));
  }
  DCP_RETURN_IF_ERROR(status);
  return metadata;
}

absl::StatusOr<std::vector<v1::ReadObjectsResponse>>
CheckpointClient::ReadObjects(const v1::ReadObjectsRequest& request,
                              const CallOptions& options) {
  std::vector<v1::ReadObjectsResponse> objects;
  DCP_RETURN_IF_ERROR(
      channel_->Call("ReadObjects", options, [&](grpc::ClientContext& context) {
        objects.clear();
        auto reader = stub_->ReadObjects(&context, request);
        v1::ReadObjectsResponse response;
        while (reader->Read(&response)) objects.push_back(std::move(response));
        return reader->Finish();
      }));
  return objects;
}

absl::StatusOr<v1::VerifyReport> CheckpointClient::Verify(
    const v1::VerifyCheckpointRequest& request, OnProgress on_progress,
    const CallOptions& options) {
  return ReadReport<v1::VerifyCheckpointResponse, v1::VerifyReport>(
      *channel_, "Verify", options, on_progress,
      [&](grpc::ClientContext& context) {
        return stub_->Verify(&context, request);
      });
}

absl::StatusOr<v1::DiffReport> CheckpointClient::Diff(
    const v1::DiffRequest& request, OnProgress on_progress,
    const CallOptions& options) {
  return ReadReport<v1::DiffResponse, v1::DiffReport>(
      *channel_, "Diff", options, on_progress,
      [&](grpc::ClientContext& context) {
        return stub_->Diff(&context, request);
      });
}

absl::StatusOr<ReadTensorsStats> CheckpointClient::ReadTensors(
    const v1::Source& source, std::span<const WantedPart> parts,
    const ReadTensorsOptions& options) {
  if (parts.empty()) return ReadTensorsStats{};
  v1::ReadTensorsRequest request;
  *request.mutable_source() = source;
  for (const WantedPart& wanted : parts) {
    *request.mutable_parts()->add_parts() = wanted.part;
  }
  size_t num_parts = 0;
  absl::StatusOr<ReadTensorsStats> stats = ReadTensors(
      request,
      [&](size_t index,
          const TensorPart& part) -> absl::StatusOr<std::span<uint8_t>> {
        if (index >= parts.size() || part.name() != parts[index].part.name()) {
          return absl::DataLossError(
              absl::StrCat("part ", index, " is '", part.name(),
                           "', which was not requested"));
        }
        ++num_parts;
        return parts[index].memory;
      },
      options);
  if (stats.ok() && num_parts != parts.size()) {
    return absl::DataLossError(absl::StrCat("ReadTensors: ", num_parts, " of ",
                                            parts.size(), " parts"));
  }
  return stats;
}

absl::StatusOr<ReadTensorsStats> CheckpointClient::ReadTensors(
    const v1::ReadTensorsRequest& request, AllocatePart allocate,
    const ReadTensorsOptions& options) {
  return TensorReader(*channel_, request, allocate, options).Run();
}

}  // namespace dcp::client
