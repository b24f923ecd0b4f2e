// SPDX-License-Identifier: Apache-2.0
// The steps of a stream. Each begins with the event that ends the previous one:
//
//   1. reserve memory for the request, read it            (the budget)
//   2. open the checkpoint, check the request against it  (the cache's tasks)
//   3. locate the payload of the requested tensors        (the same)
//   4. reserve memory for some windows                    (the budget)
//   5. write the header
//   6. request windows ahead; write the first as soon as it is ready, chunk by
//      chunk; release it when the last chunk is written
//
// [Note: one at a time] An event is recorded under the lock. The first thread
// that finds no other thread running the stream runs it, and repeats this for
// events that arrive in the meantime. All state except the events therefore
// belongs to that thread, and nothing is called while the lock is held.
#include "server/reading/tensor_stream.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_place.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "proto/error_detail.h"
#include "proto/messages/layout_messages.h"
#include "proto/messages/request_messages.h"
#include "proto/rpc_status.h"
#include "proto/utf8.h"
#include "server/access/disk_timeout.h"
#include "server/process/log_text.h"
#include "server/reading/chunk_frame.h"
#include "server/transport/call_log.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

// Windows that a stream holds: one being written and the others being read.
// With fewer, the disk and the network would wait for each other. If memory is
// scarce, a stream uses kFewWindowsAhead.
constexpr uint64_t kWindowsAhead = 4;
constexpr uint64_t kFewWindowsAhead = 2;
// Limit for small windows; each takes some hundred bytes in addition to the
// data.
constexpr size_t kMaxHeld = 256;

// For a part with a name and a box, without the payload.
constexpr uint64_t kBytesPerPart = sizeof(StreamPart) + 64;

// Memory for a request with many parts, per byte on the wire: the message and
// everything derived from it. Measured with parts that have only a name: 22.
constexpr uint64_t kRequestExpansion = 24;

constexpr size_t kSmallRequestBytes = size_t{16} << 10;

// A message's payload. By default receivers accept 4 MiB in all.
constexpr uint64_t kDefaultChunkBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxChunkBytes = uint64_t{4} << 20;
constexpr uint64_t kMinChunkBytes = 1024;
// A header message's bytes; another message costs little.
constexpr size_t kHeaderBytes = size_t{1} << 20;

bool IsHalfUsed(const MemoryBudget& budget) {
  return budget.used_bytes() > budget.limit_bytes() / 2;
}

}  // namespace

TensorStream* TensorStream::Start(StreamContext& context,
                                  grpc::CallbackServerContext& call,
                                  const Admission::Caller& caller,
                                  grpc::ByteBuffer request,
                                  absl::AnyInvocable<void()> ended) {
  std::shared_ptr<TensorStream> stream(new TensorStream(
      context, call, caller, std::move(request), std::move(ended)));
  stream->self_ = stream;
  stream->Record([](Events&) {});
  return stream.get();
}

TensorStream::TensorStream(StreamContext& context,
                           grpc::CallbackServerContext& call,
                           const Admission::Caller& caller,
                           grpc::ByteBuffer request,
                           absl::AnyInvocable<void()> ended)
    : context_(context),
      call_(call),
      client_(*caller.client),
      account_(caller.account),
      ended_(std::move(ended)),
      stall_timer_(StallTimer::Create(context.stall_timeout)),
      disk_timer_(StallTimer::Create(context.disk_timeout)),
      request_bytes_(std::move(request)) {}

std::function<void()> TensorStream::EventSetter(bool Events::*event) {
  return [weak = weak_from_this(), event] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->Record([event](Events& events) { events.*event = true; });
  };
}

void TensorStream::StartDiskTimer() {
  disk_timer_->Start(EventSetter(&Events::disk_stalled));
}

void TensorStream::AskForRequest() {
  stall_timer_->Start(EventSetter(&Events::stalled));
  StartDiskTimer();
  memory_request_ = CallMemoryRequest::Ask(
      account_, context_.budget, request_bytes_.Length() * kRequestExpansion,
      kMaxMemoryWait,
      [self = shared_from_this(),
       num_bytes = request_bytes_.Length()](absl::StatusOr<CallMemory> memory) {
        self->Admit(num_bytes, std::move(memory));
      });
}

// gRPC's threads, which all clients share, parse only small requests.
void TensorStream::Admit(size_t num_bytes, absl::StatusOr<CallMemory> memory) {
  auto admit = [self = shared_from_this(),
                memory = std::move(memory)]() mutable {
    self->Record([&](Events& events) { events.admitted = std::move(memory); });
  };
  if (num_bytes <= kSmallRequestBytes) return admit();
  const absl::Status posted =
      context_.parsers.Post(account_->name(), std::move(admit));
  if (!posted.ok()) Record([&](Events& events) { events.admitted = posted; });
}

absl::Status TensorStream::ReadRequest() {
  const grpc::Status parsed =
      grpc::SerializationTraits<v1::ReadTensorsRequest>::Deserialize(
          &request_bytes_, &request_);
  if (!parsed.ok()) {
    return WithReason(
        absl::InvalidArgumentError("the request is not a message"),
        ErrorReason::INVALID_REQUEST);
  }
  const uint64_t wanted = request_.max_chunk_bytes();
  chunk_bytes_ = wanted == 0
                     ? kDefaultChunkBytes
                     : std::clamp(wanted, kMinChunkBytes, kMaxChunkBytes);
  return absl::OkStatus();
}

void TensorStream::Open() {
  absl::StatusOr<SourceSpec> source =
      SourceFromProto(request_.source(), "source");
  if (!source.ok()) {
    return Record([&](Events& events) { events.opened = source.status(); });
  }
  context_.cache.Open(
      {.client = &client_, .account = account_}, *source, gone_.get_token(),
      [self = shared_from_this()](
          absl::StatusOr<std::shared_ptr<SharedCheckpoint>> checkpoint) {
        if (checkpoint.ok()) return self->Locate(*std::move(checkpoint));
        self->Record([&](Events& events) {
          events.opened = BlameField(checkpoint.status(), "source.path");
        });
      });
}

void TensorStream::Locate(std::shared_ptr<SharedCheckpoint> checkpoint) {
  absl::StatusOr<StreamParts> parts =
      ResolveParts(checkpoint->checkpoint(), request_, stop_.get_token());
  if (!parts.ok()) {
    const absl::Status status =
        WithPlace(parts.status(), {.path = checkpoint->checkpoint().path()});
    return Record([&](Events& events) { events.opened = status; });
  }
  std::vector<uint32_t> entries;
  for (const StreamPart& part : parts->parts) {
    if (part.num_bytes == 0) continue;
    if (entries.empty() || entries.back() != part.entry) {
      entries.push_back(part.entry);
    }
  }
  SharedCheckpoint& shared = *checkpoint;
  shared.Locate(account_->name(), std::move(entries),
                [self = shared_from_this(),
                 opened = Opened{std::move(checkpoint), *std::move(parts)}](
                    absl::Status status) mutable {
                  status = UnlessReplaced(*opened.checkpoint, status);
                  self->Record([&](Events& events) {
                    if (status.ok()) events.opened = std::move(opened);
                    if (!status.ok()) events.opened = std::move(status);
                  });
                });
}

void TensorStream::OnWriteDone(bool ok) {
  stall_timer_->EndWait();
  Record([&](Events& events) {
    events.written = true;
    events.write_failed = !ok;
  });
}

void TensorStream::OnCancel() {
  Record([](Events& events) { events.cancelled = true; });
}

void TensorStream::OnDone() {
  ended_();
  // Pending events may be the last owners.
  const std::shared_ptr<TensorStream> self = std::move(self_);
}

// See [Note: one at a time].
void TensorStream::Record(absl::FunctionRef<void(Events&)> change) {
  {
    absl::MutexLock lock(&mutex_);
    change(events_);
    again_ = true;
    if (moving_) return;
    moving_ = true;
  }
  // OnDone may be called as soon as the stream has finished.
  const std::shared_ptr<TensorStream> self = shared_from_this();
  while (true) {
    Events events;
    {
      absl::MutexLock lock(&mutex_);
      if (!std::exchange(again_, false)) {
        moving_ = false;
        return;
      }
      events = std::exchange(events_, Events());
    }
    Step(std::move(events));
  }
}

void TensorStream::Step(Events events) {
  if (finished_) return;
  absl::Status status = Take(events);
  if (!ending_ && status.ok() && memory_ != nullptr) {
    WantWindows();
    if (!writing_) status = WriteNext();
  }
  if (!ending_ && !status.ok()) End(status);
  if (!ending_ || writing_) return;
  finished_ = true;
  LogEnd();
  Finish(ToRpcStatus(status_));
}

// Logs which client received how many bytes from which checkpoint.
void TensorStream::LogEnd() const {
  context_.metrics.CountClientBytes(client_.name(), sent_bytes_);
  if (!has_opened_) return;
  DCP_LOG(kInfo) << "event=stream" << LogFields() << " bytes=" << sent_bytes_
                 << " code=" << absl::StatusCodeToString(status_.code());
}

std::string TensorStream::LogFields() const {
  return absl::StrCat(" call=", CallId(call_),
                      " client=", LogText(client_.name()),
                      " path=", LogText(request_.source().path()));
}

// Applies the events to the state. An error ends the stream.
absl::Status TensorStream::Take(Events& events) {
  if (events.written) {
    writing_ = false;
    if (!events.write_failed) {
      context_.metrics.CountBytes("streamed", writing_bytes_);
      sent_bytes_ += std::exchange(writing_bytes_, 0);
    }
  }
  if (events.cancelled) return absl::CancelledError("the call was cancelled");
  if (events.write_failed) return absl::CancelledError("the client is gone");
  if (events.stalled && writing_ && !ending_) {
    // Only this ends the write, and then the call.
    call_.TryCancel();
    DCP_LOG(kWarning) << "event=stream_stalled" << LogFields();
    return absl::CancelledError(
        absl::StrCat("the client took no message for ",
                     absl::FormatDuration(context_.stall_timeout)));
  }
  if (events.disk_stalled && !ending_) {
    if (waiting_for_disk_) {
      return DiskTimeoutError(client_, request_.source().path(),
                              context_.disk_timeout);
    }
    StartDiskTimer();  // the disk answered just in time
  }
  // The first step, when the request has not been read.
  if (chunk_bytes_ == 0 && memory_request_ == nullptr && !ending_)
    AskForRequest();
  if (events.admitted.has_value() && !ending_) {
    memory_request_ = nullptr;
    DCP_RETURN_IF_ERROR(events.admitted->status());
    request_memory_ = *std::move(*events.admitted);
    DCP_RETURN_IF_ERROR(ReadRequest());
    SetWaitingForDisk(true);
    Open();
  }
  if (events.opened.has_value() && !ending_) {
    SetWaitingForDisk(false);
    DCP_RETURN_IF_ERROR(events.opened->status());
    DCP_RETURN_IF_ERROR(TakeOpened(*std::move(*events.opened)));
  }
  if (events.memory.has_value() && !ending_) {
    memory_request_ = nullptr;
    DCP_RETURN_IF_ERROR(events.memory->status());
    memory_ = std::make_shared<CallMemory>(*std::move(*events.memory));
    request_memory_ = CallMemory();
    user_ = std::make_unique<WindowUser>(context_.readers,
                                         [weak = weak_from_this()] {
                                           if (const auto self = weak.lock())
                                             self->Record([](Events&) {});
                                         });
  }
  return absl::OkStatus();
}

absl::Status TensorStream::TakeOpened(Opened opened) {
  opened_ = std::move(opened);
  has_opened_ = true;
  request_.clear_wanted();  // opened_ has the parts
  request_.mutable_source()->clear_map();
  const uint64_t num_bytes = opened_->parts.num_bytes;
  if (!request_.etag().empty() &&
      request_.etag() != opened_->checkpoint->etag()) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "the checkpoint was replaced: the etag is now ",
            opened_->checkpoint->etag(), ", not ", ToUtf8(request_.etag()))),
        ErrorReason::CHECKPOINT_REPLACED,
        {{"etag", std::string(opened_->checkpoint->etag())}});
  }
  if (request_.resume_offset() > num_bytes) {
    return InvalidField("resume_offset",
                        absl::StrCat(" is ", request_.resume_offset(),
                                     ": the stream has ", num_bytes, " bytes"));
  }
  want_offset_ = write_offset_ = request_.resume_offset();
  AskForMemory();
  return absl::OkStatus();
}

void TensorStream::AskForMemory() {
  const bool is_short =
      IsHalfUsed(context_.budget) || IsHalfUsed(account_->memory());
  window_bytes_ =
      std::min(opened_->parts.num_bytes,
               (is_short ? kFewWindowsAhead : kWindowsAhead) * kWindowBytes);
  const uint64_t num_bytes =
      window_bytes_ + opened_->parts.parts.size() * kBytesPerPart;
  if (context_.budget.num_waiting() > 0 ||
      num_bytes >
          context_.budget.limit_bytes() - context_.budget.used_bytes()) {
    context_.readers.DropIdle();
  }
  memory_request_ = CallMemoryRequest::Ask(
      account_, context_.budget, num_bytes, kMaxMemoryWait,
      [self = shared_from_this()](absl::StatusOr<CallMemory> memory) {
        self->Record(
            [&](Events& events) { events.memory = std::move(memory); });
      });
}

void TensorStream::WantWindows() {
  const StreamParts& parts = opened_->parts;
  while (want_offset_ < parts.num_bytes && held_.size() < kMaxHeld) {
    const size_t index = parts.PartAt(want_offset_);
    const StreamPart& part = parts.parts[index];
    const TensorEntry& tensor =
        *opened_->checkpoint->checkpoint().entries()[part.entry].tensor();
    PartWindow window = WindowAt(tensor.shape, part, want_offset_ - part.begin);
    if (held_bytes_ + window.num_bytes > window_bytes_) return;
    held_bytes_ += window.num_bytes;
    want_offset_ = part.begin + window.begin + window.num_bytes;
    held_.push_back({user_->Want({.checkpoint = opened_->checkpoint,
                                  .entry = part.entry,
                                  .dtype = part.dtype,
                                  .box = std::move(window.box)},
                                 window.num_bytes),
                     static_cast<uint32_t>(index), window.begin});
  }
}

// Writes the next message if possible. An error ends the stream; at the end of
// the payload this ends the stream itself and returns OK.
absl::Status TensorStream::WriteNext() {
  if (!header_written_) {
    WriteHeader();
    return absl::OkStatus();
  }
  // Releases windows that are written to the end.
  while (!held_.empty()) {
    const Held& first = held_.front();
    const uint64_t end = opened_->parts.parts[first.part].begin + first.begin +
                         first.window->num_bytes;
    if (write_offset_ < end) break;
    held_bytes_ -= first.window->num_bytes;
    held_.pop_front();
    user_->LetGo();
    WantWindows();
  }
  if (held_.empty()) {
    End(absl::OkStatus());
    return absl::OkStatus();
  }
  const bool ready = held_.front().window->ready();
  SetWaitingForDisk(!ready);
  if (!ready) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(held_.front().window->status());
  WriteChunk();
  return absl::OkStatus();
}

void TensorStream::SetWaitingForDisk(bool waiting) {
  if (std::exchange(waiting_for_disk_, waiting) == waiting) return;
  if (waiting) return disk_timer_->BeginWait();
  disk_timer_->EndWait();
}

void TensorStream::WriteHeader() {
  v1::ReadTensorsResponse response;
  v1::ReadTensorsResponse::Header& header = *response.mutable_header();
  header.set_num_bytes(opened_->parts.num_bytes);
  header.set_etag(opened_->checkpoint->etag());
  const std::vector<StreamPart>& parts = opened_->parts.parts;
  size_t num_bytes = 0;
  while (next_header_part_ < parts.size() && num_bytes < kHeaderBytes) {
    const StreamPart& part = parts[next_header_part_++];
    const TensorEntry& tensor =
        *opened_->checkpoint->checkpoint().entries()[part.entry].tensor();
    v1::ReadTensorsResponse::Header::Part& made = *header.add_parts();
    made.set_name(ToUtf8(part.name));
    made.set_dtype(std::string(TorchName(part.dtype)));
    made.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    BoxToProto(part.box, *made.mutable_box());
    made.set_num_bytes(part.num_bytes);
    num_bytes += made.ByteSizeLong();
  }
  header_written_ = next_header_part_ == parts.size();
  header.set_more(!header_written_);
  const grpc::Slice slice(response.SerializeAsString());
  buffer_ = grpc::ByteBuffer(&slice, 1);
  Write();
}

void TensorStream::WriteChunk() {
  const Held& first = held_.front();
  const StreamPart& part = opened_->parts.parts[first.part];
  const uint64_t in_window = write_offset_ - part.begin - first.begin;
  // The cuts do not depend on where the stream began or resumed.
  const uint64_t until = std::min(
      first.window->num_bytes, (in_window / chunk_bytes_ + 1) * chunk_bytes_);
  const ByteSpan data =
      first.window->bytes().subspan(in_window, until - in_window);
  // Keeps window and memory. Owner: gRPC, until it has sent the message.
  struct Owner {
    std::shared_ptr<const SharedWindow> window;
    std::shared_ptr<const CallMemory> memory;
  };
  buffer_ =
      ChunkFrameBuffer({.part = first.part,
                        .offset = write_offset_ - part.begin,
                        .data = data,
                        .crc32c = first.window->Crc32c(in_window, data.size())},
                       std::make_shared<Owner>(Owner{first.window, memory_}));
  write_offset_ += data.size();
  writing_bytes_ = data.size();
  Write();
}

void TensorStream::Write() {
  writing_ = true;
  stall_timer_->BeginWait();
  StartWrite(&buffer_);
}

// Releases everything; the call ends when the last message is written.
void TensorStream::End(const absl::Status& status) {
  ending_ = true;
  status_ = status;
  stop_.request_stop();
  if (absl::IsCancelled(status)) gone_.request_stop();
  stall_timer_->Stop();
  disk_timer_->Stop();
  if (memory_request_ != nullptr) memory_request_->Cancel();
  memory_request_ = nullptr;
  held_.clear();
  user_ = nullptr;
  memory_ = nullptr;
  request_memory_ = CallMemory();
  opened_.reset();
}

}  // namespace dcp::server
