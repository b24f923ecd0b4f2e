#include "server/reading/checkpoint_service.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/diff.h"
#include "dcp/checkpoint/verify.h"
#include "dcp/format/pickle_writer.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "proto/utf8.h"
#include "server/access/disk_timeout.h"
#include "server/access/rooted_file_system.h"
#include "server/memory/call_memory.h"
#include "server/memory/memory_request.h"
#include "server/memory/memory_shares.h"
#include "server/messages.h"
#include "server/process/refusal.h"
#include "server/reading/dcp_index.h"
#include "server/reading/inspection_page.h"
#include "server/reading/name_filter.h"
#include "server/reading/progress_ticker.h"
#include "server/reading/timed_answer.h"
#include "server/transport/compression.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

// Threads per root that open and locate; each may take kMinMemoryBytes to
// locate.
constexpr size_t kNumOpeners = 2;
// Verify and Diff calls that run at the same time, per root; further calls
// wait.
constexpr size_t kNumCheckers = 2;
constexpr size_t kMaxChecksWaiting = 64;
// Waiting unary calls, in addition to the streams; each call has at most one
// task waiting.
constexpr size_t kMaxCallsWaiting = 1000;

// Memory of a Verify or a Diff: enough to keep a disk busy.
constexpr uint64_t kCheckMemoryBytes = uint64_t{64} << 20;

// Bytes in one message of GetMetadata.
constexpr size_t kMetadataChunkBytes = size_t{1} << 20;

constexpr int64_t kRetryAfterMs = 2000;

// A single root may use all readers. With several roots each leaves one reader
// to the others, in case its file system does not answer.
int64_t ReadersOfARoot(const Access& access, int64_t num_readers) {
  return access.server().roots().size() < 2
             ? num_readers
             : std::max<int64_t>(1, num_readers - 1);
}

// A stream whose call was refused.
class FailedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit FailedStream(const absl::Status& status) {
    Finish(ToRpcStatus(status));
  }
  void OnDone() override { delete this; }
};

// A unary call that signals when its client is gone.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  std::stop_token stop() const { return stop_.get_token(); }

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  std::stop_source stop_;
};

// An error if the object's value cannot be sent as a pickle alone.
absl::Status CheckPlainObject(const CheckpointEntry& entry) {
  DCP_RETURN_IF_ERROR(WithPlace(Annotate(entry.object()->unreadable, entry.fqn),
                                {.tensor = entry.fqn}));
  if (entry.object()->tensors.empty()) return absl::OkStatus();
  return WithPlace(absl::UnimplementedError(
                       absl::StrCat(entry.fqn,
                                    " is an object with tensors inside, which "
                                    "ReadObjects does not carry: convert it")),
                   {.tensor = entry.fqn});
}

// Ends a Verify or a Diff early when its client is gone or its disk hangs.
template <typename Response>
class CheckWatch {
 public:
  using Stream = std::shared_ptr<MessageStream<Response>>;

  // If no byte was read for `timeout`, the stream ends with `late`; the blocked
  // thread is left alone until the disk answers again.
  CheckWatch(const Stream& stream, absl::Duration timeout, absl::Status late)
      : on_cancel_(stream->stop(), [this] { stop_.request_stop(); }),
        ticker_(ProgressTicker::Start(
            std::min(kProgressInterval, timeout),
            [stream](const v1::ReadProgress& progress) {
              Response response;
              *response.mutable_progress() = progress;
              stream->Offer(std::move(response));
            },
            timeout,
            [stream, stop = stop_, late = std::move(late)]() mutable {
              stream->Fail(late);
              stop.request_stop();
            })) {}
  ~CheckWatch() { ticker_->Stop(); }

  std::stop_token stop() const { return stop_.get_token(); }
  ProgressTicker& ticker() { return *ticker_; }

 private:
  std::stop_source stop_;
  const std::stop_callback<std::function<void()>> on_cancel_;
  const std::shared_ptr<ProgressTicker> ticker_;
};

// Sends the last message. `fill` is called when the message is about to be
// written.
template <typename Response, typename Fill>
void SendLast(const std::shared_ptr<MessageStream<Response>>& stream,
              Fill fill) {
  stream->Send([fill = std::move(fill), sent = false](
                   Response& response) mutable -> absl::StatusOr<bool> {
    if (std::exchange(sent, true)) return false;
    fill(response);
    return true;
  });
}

}  // namespace

CheckpointService::CheckpointService(FileSystem& fs, Admission& admission,
                                     MemoryBudget& budget, Metrics& metrics,
                                     const ServerOptions& options,
                                     absl::Duration stall_timeout)
    : fs_(fs),
      admission_(admission),
      budget_(budget),
      metrics_(metrics),
      max_streams_(options.max_streams),
      stall_timeout_(stall_timeout),
      disk_timeout_(options.disk_timeout),
      max_memory_bytes_(options.max_memory_bytes),
      openers_(admission.access(), kNumOpeners,
               static_cast<size_t>(options.max_streams) + kMaxCallsWaiting),
      checkers_(admission.access(), kNumCheckers, kMaxChecksWaiting),
      cache_(fs, openers_,
             CheckpointCacheLimits{.disk_timeout = options.disk_timeout}) {
  const MemoryShares shares =
      DivideMemory(options.max_memory_bytes, options.num_readers);
  can_read_ = shares.num_readers > 0;
  readers_ = std::make_unique<WindowReaders>(
      fs_, budget_, metrics_,
      WindowReadersOptions{.num_readers = shares.num_readers,
                           .num_readers_per_root = ReadersOfARoot(
                               admission.access(), shares.num_readers),
                           .blocks_per_reader = shares.blocks_per_reader,
                           .idle_bytes = shares.idle_bytes});
  stream_context_ = std::make_unique<StreamContext>(StreamContext{
      cache_, *readers_, budget_, metrics_, stall_timeout_, disk_timeout_});
  streams_gauge_ =
      metrics_.AddGauge("tessera_streams", "Calls that stream, at the moment.",
                        [this] { return static_cast<double>(num_streams()); });
}

// Tasks may outlive the call that was cancelled, so stop them first.
CheckpointService::~CheckpointService() {
  streams_gauge_ = nullptr;
  checkers_.Stop();
  openers_.Stop();
}

absl::StatusOr<Admission::Caller> CheckpointService::Admit(
    const grpc::CallbackServerContext& context) {
  if (draining_.load()) {
    return ServerDraining();
  }
  return admission_.Admit(context);
}

absl::Status CheckpointService::BeginStream(ClientAccount& account) {
  DCP_RETURN_IF_ERROR(account.BeginStream());
  if (num_streams_.fetch_add(1) < max_streams_) return absl::OkStatus();
  EndStream(account);
  return LimitReached(
      {.name = "max-streams",
       .value = static_cast<uint64_t>(max_streams_),
       .retry_after_ms = kRetryAfterMs},
      absl::StrCat("there are ", max_streams_,
                   " streams already, as many as the server allows"));
}

void CheckpointService::EndStream(ClientAccount& account) {
  num_streams_.fetch_sub(1);
  account.EndStream();
}

template <typename Response>
std::shared_ptr<MessageStream<Response>> CheckpointService::NewStream(
    grpc::CallbackServerContext& context, Caller& caller) {
  CompressIfAsked(context);
  absl::StatusOr<Caller> admitted = Admit(context);
  if (admitted.ok()) caller = *std::move(admitted);
  absl::Status status =
      admitted.ok() ? BeginStream(*caller.account) : admitted.status();
  auto stream = MessageStream<Response>::Make(
      context, stall_timeout_,
      [this, counted = status.ok(), account = caller.account] {
        if (counted) EndStream(*account);
      });
  if (!status.ok()) {
    caller.client = nullptr;
    stream->Fail(std::move(status));
  }
  return stream;
}

template <typename Response>
void CheckpointService::OpenFor(
    const std::shared_ptr<MessageStream<Response>>& stream,
    const Client& client, const v1::Source& source, absl::string_view field,
    OpenedFunction then) {
  const absl::StatusOr<SourceSpec> spec = SourceFromProto(source, field);
  if (!spec.ok()) return stream->Fail(spec.status());
  cache_.Open(
      client, *spec, stream->stop(),
      [stream, path = absl::StrCat(field, ".path"), then = std::move(then)](
          absl::StatusOr<std::shared_ptr<SharedCheckpoint>> opened) mutable {
        if (!opened.ok())
          return stream->Fail(BlameField(opened.status(), path));
        then(*std::move(opened));
      });
}

void CheckpointService::Locate(const Client& client, SharedCheckpoint& shared,
                               std::vector<uint32_t> entries,
                               SharedCheckpoint::Located done) {
  const auto answer = TimedAnswer<absl::Status>::Start(
      disk_timeout_,
      DiskTimeoutError(client, shared.checkpoint().path(), disk_timeout_),
      std::move(done));
  shared.Locate(std::move(entries), [answer](absl::Status status) {
    answer->Give(std::move(status));
  });
}

grpc::ServerUnaryReactor* CheckpointService::Inspect(
    grpc::CallbackServerContext* context, const v1::InspectRequest* request,
    v1::InspectResponse* response) {
  auto* const reactor = new UnaryCall();  // ends itself
  const auto end = [reactor](const absl::Status& status) {
    reactor->Finish(ToRpcStatus(status));
  };
  const absl::StatusOr<Caller> caller = Admit(*context);
  const absl::StatusOr<SourceSpec> source =
      caller.ok() ? SourceFromProto(request->source(), "source")
                  : absl::StatusOr<SourceSpec>(caller.status());
  if (!source.ok()) {
    end(source.status());
    return reactor;
  }
  CompressIfAsked(*context);
  cache_.Open(
      *caller->client, *source, reactor->stop(),
      [this, client = caller->client, context, request, response,
       end](absl::StatusOr<std::shared_ptr<SharedCheckpoint>> opened) {
        if (!opened.ok())
          return end(BlameField(opened.status(), "source.path"));
        const std::shared_ptr<SharedCheckpoint> shared = *std::move(opened);
        absl::StatusOr<InspectionPage> page =
            ChoosePage(*shared, *request, page_tokens_,
                       [context] { return context->IsCancelled(); });
        if (!page.ok()) return end(page.status());
        std::vector<uint32_t> objects = page->objects;
        Locate(*client, *shared, std::move(objects),
               [this, request, response, end, shared,
                page = *std::move(page)](const absl::Status& located) {
                 // The values of a damaged file are left out; a file system
                 // that does not answer is an error.
                 if (absl::IsUnavailable(located)) return end(located);
                 FillPage(*shared, *request, page, page_tokens_,
                          located.ok() && !page.objects.empty(), *response);
                 end(absl::OkStatus());
               });
      });
  return reactor;
}

grpc::ServerWriteReactor<v1::GetMetadataResponse>*
CheckpointService::GetMetadata(grpc::CallbackServerContext* context,
                               const v1::GetMetadataRequest* request) {
  Caller caller;
  const auto stream = NewStream<v1::GetMetadataResponse>(*context, caller);
  if (caller.client == nullptr) return stream.get();
  const auto send = [this, stream](std::shared_ptr<SharedCheckpoint> shared,
                                   absl::StatusOr<CallMemory> memory) {
    if (!memory.ok()) return stream->Fail(memory.status());
    const absl::Status posted =
        openers_.QueueOf(shared->checkpoint().path())
            ->Post([stream, shared, memory = *std::move(memory)]() mutable {
              stream->Send([index = DcpIndexOf(shared->checkpoint()),
                            memory = std::move(memory), sent = size_t{0}](
                               v1::GetMetadataResponse& response) mutable
                           -> absl::StatusOr<bool> {
                if (sent == index.size()) return false;
                *response.mutable_data() =
                    index.substr(sent, kMetadataChunkBytes);
                sent += response.data().size();
                return true;
              });
            });
    if (!posted.ok()) stream->Fail(posted);
  };
  OpenFor(stream, *caller.client, request->source(), "source",
          [this, account = caller.account,
           send](std::shared_ptr<SharedCheckpoint> shared) {
            const uint64_t num_bytes = DcpIndexBytes(shared->checkpoint());
            CallMemoryRequest::Ask(
                account, budget_, num_bytes, kMaxMemoryWait,
                [send, shared](absl::StatusOr<CallMemory> memory) {
                  send(shared, std::move(memory));
                });
          });
  return stream.get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* CheckpointService::ReadTensors(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  const auto fail = [](const absl::Status& status) {
    return new FailedStream(status);
  };
  const absl::StatusOr<Caller> caller = Admit(*context);
  if (!caller.ok()) return fail(caller.status());
  if (!can_read_) {
    return fail(RequestTooLarge(
        "max-memory", max_memory_bytes_,
        absl::StrCat("max-memory is ", max_memory_bytes_, " bytes: reading ",
                     "tensors takes ", kMinReadingBytes)));
  }
  const absl::Status begun = BeginStream(*caller->account);
  if (!begun.ok()) return fail(begun);
  return TensorStream::Start(
      *stream_context_, *context, *caller, *request,
      [this, account = caller->account] { EndStream(*account); });
}

grpc::ServerWriteReactor<v1::ReadObjectsResponse>*
CheckpointService::ReadObjects(grpc::CallbackServerContext* context,
                               const v1::ReadObjectsRequest* request) {
  Caller caller;
  const auto stream = NewStream<v1::ReadObjectsResponse>(*context, caller);
  if (caller.client == nullptr) return stream.get();
  absl::StatusOr<std::vector<std::string>> globs =
      GlobsFromProto(request->names(), "names");
  if (!globs.ok()) {
    stream->Fail(globs.status());
    return stream.get();
  }
  OpenFor(
      stream, *caller.client, request->source(), "source",
      [this, stream, client = caller.client,
       filter = NameFilter(*std::move(globs))](
          std::shared_ptr<SharedCheckpoint> shared) {
        const auto& entries = shared->checkpoint().entries();
        std::vector<uint32_t> wanted;
        for (uint32_t i = 0; i < entries.size(); ++i) {
          if (entries[i].object() == nullptr) continue;
          if (i % kNamesPerLook == 0 && stream->stop().stop_requested()) {
            return stream->Fail(absl::CancelledError("the call was cancelled"));
          }
          if (filter.Matches(entries[i].fqn)) wanted.push_back(i);
        }
        std::vector<uint32_t> to_locate = wanted;
        Locate(
            *client, *shared, std::move(to_locate),
            [stream, shared, wanted = std::move(wanted)](absl::Status located) {
              if (!located.ok()) return stream->Fail(std::move(located));
              stream->Send([shared, wanted, next = size_t{0}](
                               v1::ReadObjectsResponse& response) mutable
                           -> absl::StatusOr<bool> {
                if (next == wanted.size()) return false;
                const CheckpointEntry& entry =
                    shared->checkpoint().entries()[wanted[next++]];
                DCP_RETURN_IF_ERROR(CheckPlainObject(entry));
                response.set_name(ToUtf8(entry.fqn));
                *response.mutable_pickle() = WritePickle(entry.object()->value);
                return true;
              });
            });
      });
  return stream.get();
}

template <typename Response>
void CheckpointService::RunCheck(
    const std::shared_ptr<MessageStream<Response>>& stream,
    const Caller& caller, const SharedCheckpoint& shared,
    absl::AnyInvocable<void(uint64_t)> check) {
  TaskQueue& threads = *checkers_.QueueOf(shared.checkpoint().path());
  const uint64_t num_bytes =
      std::max(std::min(kCheckMemoryBytes, max_memory_bytes_ / kCallsShare),
               kMinMemoryBytes);
  CallMemoryRequest::Ask(
      caller.account, budget_, num_bytes, kMaxMemoryWait,
      [stream, num_bytes, &threads,
       check = std::move(check)](absl::StatusOr<CallMemory> memory) mutable {
        if (!memory.ok()) return stream->Fail(memory.status());
        const absl::Status posted = threads.Post(
            [num_bytes, check = std::move(check),
             memory = *std::move(memory)]() mutable { check(num_bytes); });
        if (!posted.ok()) stream->Fail(posted);
      });
}

grpc::ServerWriteReactor<v1::VerifyCheckpointResponse>*
CheckpointService::Verify(grpc::CallbackServerContext* context,
                          const v1::VerifyCheckpointRequest* request) {
  using Response = v1::VerifyCheckpointResponse;
  Caller caller;
  const auto stream = NewStream<Response>(*context, caller);
  if (caller.client == nullptr) return stream.get();
  const absl::StatusOr<double> percent =
      SamplePercentFromProto(request->sample_percent(), "sample_percent");
  if (!percent.ok()) {
    stream->Fail(percent.status());
    return stream.get();
  }
  const auto check = [this, stream, client = caller.client, percent = *percent](
                         const std::shared_ptr<SharedCheckpoint>& shared,
                         uint64_t memory_bytes) {
    const std::string& path = shared->checkpoint().path();
    CheckWatch<Response> watch(stream, disk_timeout_,
                               DiskTimeoutError(*client, path, disk_timeout_));
    ProgressTicker& ticker = watch.ticker();
    RootedFileSystem fs(fs_, *client);
    absl::StatusOr<VerifyReport> report = VerifyCheckpoint(
        fs, path,
        {.open = {.rank = shared->rank(), .progress = &ticker.opening()},
         .sample_percent = percent,
         .memory_bytes = memory_bytes,
         .stop = watch.stop(),
         .stats = &ticker.stats(),
         .on_plan = [&](uint64_t bytes) { ticker.set_total(bytes); }});
    if (!report.ok()) {
      return stream->Fail(WithPlace(report.status(), {.path = path}));
    }
    SendLast(stream, [report = *std::move(report)](Response& response) {
      VerifyReportToProto(report, *response.mutable_report());
    });
  };
  OpenFor(
      stream, *caller.client, request->source(), "source",
      [this, stream, caller, check](std::shared_ptr<SharedCheckpoint> shared) {
        RunCheck(stream, caller, *shared,
                 [check, shared](uint64_t memory_bytes) {
                   check(shared, memory_bytes);
                 });
      });
  return stream.get();
}

grpc::ServerWriteReactor<v1::DiffResponse>* CheckpointService::Diff(
    grpc::CallbackServerContext* context, const v1::DiffRequest* request) {
  using Response = v1::DiffResponse;
  using Shared = std::shared_ptr<SharedCheckpoint>;
  Caller caller;
  const auto stream = NewStream<Response>(*context, caller);
  if (caller.client == nullptr) return stream.get();
  const absl::StatusOr<SelectionOptions> selection_a =
      SelectionFromProto(request->selection_a(), "selection_a");
  const absl::StatusOr<SelectionOptions> selection_b =
      SelectionFromProto(request->selection_b(), "selection_b");
  const absl::StatusOr<Tolerance> given =
      ToleranceFromProto(request->tolerance(), "tolerance");
  for (const absl::Status& status :
       {selection_a.status(), selection_b.status(), given.status()}) {
    if (status.ok()) continue;
    stream->Fail(status);
    return stream.get();
  }
  std::optional<Tolerance> tolerance;
  if (request->has_tolerance()) tolerance = *given;
  const auto check = [this, stream, client = caller.client, tolerance,
                      selection_a = *selection_a, selection_b = *selection_b,
                      tensors_only = request->tensors_only()](
                         const Shared& a, const Shared& b,
                         uint64_t memory_bytes) {
    CheckWatch<Response> watch(
        stream, disk_timeout_,
        DiskTimeoutError(*client, a->checkpoint().path(), disk_timeout_));
    ProgressTicker& ticker = watch.ticker();
    RootedFileSystem fs(fs_, *client);
    absl::StatusOr<DiffReport> report = DiffCheckpoints(
        fs, a->checkpoint().path(), b->checkpoint().path(),
        {.open = {.rank = a->rank(), .progress = &ticker.opening()},
         .selection_a = selection_a,
         .selection_b = selection_b,
         .tensors_only = tensors_only,
         .tolerance = tolerance,
         .memory_bytes = memory_bytes,
         .stop = watch.stop(),
         .stats = &ticker.stats(),
         .on_plan = [&](uint64_t bytes) { ticker.set_total(bytes); }});
    if (!report.ok()) return stream->Fail(report.status());
    SendLast(stream, [report = *std::move(report)](Response& response) {
      DiffReportToProto(report, *response.mutable_report());
    });
  };
  OpenFor(stream, *caller.client, request->a(), "a",
          [this, stream, caller, check, source_b = request->b()](Shared a) {
            OpenFor(stream, *caller.client, source_b, "b",
                    [this, stream, caller, a, check](Shared b) {
                      if (a->rank() != b->rank()) {
                        return stream->Fail(InvalidField(
                            "b.rank", absl::StrCat(" is ", b->rank(),
                                                   ", a.rank is ", a->rank(),
                                                   ": they must be the same")));
                      }
                      RunCheck(stream, caller, *a,
                               [check, a, b](uint64_t memory_bytes) {
                                 check(a, b, memory_bytes);
                               });
                    });
          });
  return stream.get();
}

}  // namespace dcp::server
