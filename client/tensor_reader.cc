// SPDX-License-Identifier: Apache-2.0

#include "client/tensor_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/backoff.h"
#include "client/message_stream.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"

namespace dcp::client {
namespace {

constexpr absl::string_view kCall = "ReadTensors";

// A stream for fewer bytes is not worth the round trips for connecting. When a
// range ends, all data that the server has read ahead is wasted.
constexpr uint64_t kMinRangeBytes = uint64_t{32} << 20;

std::string Method() {
  return absl::StrCat("/", tessera::v1::CheckpointService::service_full_name(),
                      "/", kCall);
}

}  // namespace

TensorReader::TensorReader(const Channel& channel, const Request& request,
                           AllocatePart allocate,
                           const ReadTensorsOptions& options)
    : channel_(channel),
      request_(request),
      allocate_(allocate),
      options_(options),
      end_(SteadyNow() + options.call.timeout) {}

absl::StatusOr<ReadTensorsStats> TensorReader::Run() {
  const std::stop_callback stop(options_.call.stop,
                                [this] { stop_.request_stop(); });
  // The end is known once the header has arrived.
  TensorRange first(0, UINT64_MAX);
  if (absl::Status status = ReadRange(first, true); !status.ok()) Fail(status);
  for (TensorRange* const range : left_) ReadRest(*range);
  threads_.clear();  // joins
  absl::MutexLock lock(&mutex_);
  if (!first_failure_.ok()) return first_failure_;
  return ReadTensorsStats{.num_bytes = layout_.num_bytes(),
                          .num_resumed = num_resumed_};
}

void TensorReader::ReadRest(TensorRange& range) {
  if (absl::Status status = ReadRange(range, false); !status.ok()) Fail(status);
}

// Keeps the first failure and ends the other streams.
void TensorReader::Fail(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (first_failure_.ok()) first_failure_ = status;
  }
  stop_.request_stop();
}

absl::Status TensorReader::ReadRange(TensorRange& range, bool is_first) {
  Backoff backoff = channel_.NewBackoff(end_, stop_.get_token());
  while (true) {
    Request request = request_;
    request.set_max_chunk_bytes(options_.max_chunk_bytes);
    request.set_resume_offset(range.position());
    request.set_etag(begun_ ? layout_.etag() : options_.etag);
    const uint64_t begin = range.position();
    absl::Status failure;
    const absl::Status status = channel_.Attempt(
        kCall, end_, stop_.get_token(), [&](grpc::ClientContext& context) {
          return ReadOnce(context, request, range, is_first, failure);
        });
    if (!failure.ok()) return Annotate(failure, kCall);
    if (begun_ && range.done()) return absl::OkStatus();
    if (status.ok()) {
      return absl::DataLossError(absl::StrCat(
          kCall, ": the stream ended at byte ", range.position(), " of ",
          begun_ ? absl::StrCat(layout_.num_bytes()) : "its header"));
    }
    if (range.position() > begin) backoff.Reset();
    DCP_RETURN_IF_ERROR(backoff.Wait(status));
    absl::MutexLock lock(&mutex_);
    ++num_resumed_;
  }
}

grpc::Status TensorReader::ReadOnce(grpc::ClientContext& context,
                                    const Request& request, TensorRange& range,
                                    bool is_first, absl::Status& failure) {
  MessageStream stream(channel_.grpc_channel(), context, Method(), request);
  TensorLayout header;
  grpc::ByteBuffer message;
  while (stream.Read(message)) {
    failure = Take(message, header, range, is_first);
    // The server does not know where a range ends.
    if (!failure.ok() ||
        (begun_ && range.done() && range.end() < layout_.num_bytes())) {
      context.TryCancel();
      break;
    }
  }
  return stream.Finish();
}

absl::Status TensorReader::Take(grpc::ByteBuffer& message, TensorLayout& header,
                                TensorRange& range, bool is_first) {
  {
    ChunkParser parser(message);
    ReceivedChunk chunk;
    if (parser.Parse(chunk)) return TakeChunk(chunk, range);
  }
  Response response;
  const grpc::Status parsed =
      grpc::SerializationTraits<Response>::Deserialize(&message, &response);
  if (!parsed.ok()) {
    return absl::DataLossError(
        "the server sent something that is not a message");
  }
  if (response.has_header()) {
    return TakeHeader(response.header(), header, range, is_first);
  }
  if (!response.has_chunk()) {
    return absl::DataLossError("a message has neither header nor payload");
  }
  return TakeChunk(ReceivedChunk::FromChunk(response.chunk()), range);
}

absl::Status TensorReader::TakeHeader(const Response::Header& message,
                                      TensorLayout& header, TensorRange& range,
                                      bool is_first) {
  DCP_RETURN_IF_ERROR(header.Add(message));
  if (!header.complete()) return absl::OkStatus();
  const bool begins = is_first && !begun_;
  const bool is_same =
      begins ? options_.etag.empty() || header.etag() == options_.etag
             : header.etag() == layout_.etag() &&
                   header.num_bytes() == layout_.num_bytes();
  if (!is_same) {
    return absl::FailedPreconditionError(
        "the checkpoint was replaced while it was read");
  }
  return begins ? Begin(std::move(header), range) : absl::OkStatus();
}

absl::Status TensorReader::TakeChunk(const ReceivedChunk& chunk,
                                     TensorRange& range) {
  if (!begun_) return absl::DataLossError("there is payload before the header");
  if (range.done()) {
    return absl::DataLossError("there is more than the header says");
  }
  const uint64_t begin = range.position();
  DCP_RETURN_IF_ERROR(range.Place(chunk, layout_));
  if (options_.bytes_arrived != nullptr) {
    *options_.bytes_arrived += range.position() - begin;
  }
  return absl::OkStatus();
}

absl::Status TensorReader::Begin(TensorLayout header, TensorRange& range) {
  layout_ = std::move(header);
  DCP_RETURN_IF_ERROR(layout_.Allocate(allocate_));
  const uint64_t num_bytes = layout_.num_bytes();
  const uint64_t num_ranges = std::clamp<uint64_t>(
      num_bytes / kMinRangeBytes, 1,
      static_cast<uint64_t>(std::max<int64_t>(options_.num_streams, 1)));
  const uint64_t range_bytes = num_bytes / num_ranges;
  range = TensorRange(0, num_ranges == 1 ? num_bytes : range_bytes);
  begun_ = true;
  for (uint64_t i = 1; i < num_ranges; ++i) {
    TensorRange& other = ranges_.emplace_back(
        i * range_bytes,
        i + 1 == num_ranges ? num_bytes : (i + 1) * range_bytes);
    absl::StatusOr<Thread> thread =
        Thread::Start([this, &other] { ReadRest(other); });
    if (thread.ok()) {
      threads_.push_back(*std::move(thread));
    } else {
      left_.push_back(&other);
    }
  }
  return absl::OkStatus();
}

}  // namespace dcp::client
