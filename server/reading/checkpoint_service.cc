// SPDX-License-Identifier: Apache-2.0

#include "server/reading/checkpoint_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_place.h"
#include "dcp/base/status.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "proto/error_detail.h"
#include "proto/messages/request_messages.h"
#include "proto/rpc_status.h"
#include "proto/utf8.h"
#include "server/memory/call_memory.h"
#include "server/memory/memory_request.h"
#include "server/memory/memory_shares.h"
#include "server/process/refusal.h"
#include "server/reading/dcp_index.h"
#include "server/reading/inspection_page.h"
#include "server/reading/name_filter.h"
#include "server/transport/compression.h"
#include "server/transport/unary_call.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

// Threads per root that open and locate; each may take kMinMemoryBytes to
// locate.
constexpr size_t kNumOpeners = 3;
constexpr size_t kOpenersOfAClient = 2;
// Threads that parse large requests, for all roots.
constexpr size_t kNumParsers = 2;
constexpr size_t kParsersOfAClient = 1;
// Threads per root that open through a mapping. Strangers' rules may take a
// thread several seconds and hundreds of MiB; more threads would take more.
constexpr size_t kNumMappers = 1;
// Waiting unary calls, in addition to the streams; each call has at most one
// task waiting.
size_t MaxCallsWaiting(const ServerOptions& options) {
  constexpr size_t kUnaryCalls = 1000;
  return static_cast<size_t>(options.max_streams) + kUnaryCalls;
}

// Bytes in one GetMetadata message.
constexpr size_t kMetadataChunkBytes = size_t{1} << 20;

// A single root may use all readers. With several roots each leaves one reader
// to the others, in case a file system does not answer.
int64_t ReadersPerRoot(const Access& access, int64_t num_readers) {
  return access.server().roots().size() < 2
             ? num_readers
             : std::max<int64_t>(1, num_readers - 1);
}

// The stream for a call that was refused.
class FailedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit FailedStream(const absl::Status& status) {
    Finish(ToRpcStatus(status));
  }
  void OnDone() override { delete this; }
};

// An error if the object's value cannot be sent as a pickle alone.
absl::Status CheckPlainObject(const CheckpointEntry& entry) {
  DCP_RETURN_IF_ERROR(WithPlace(Annotate(entry.object()->unreadable, entry.fqn),
                                {.tensor = entry.fqn}));
  if (entry.object()->tensors.empty()) return absl::OkStatus();
  return WithPlace(absl::UnimplementedError(absl::StrCat(
                       entry.fqn,
                       " is an object with tensors inside, which "
                       "ReadObjects cannot send: convert the checkpoint")),
                   {.tensor = entry.fqn});
}

}  // namespace

CheckpointService::CheckpointService(FileSystem& fs, Admission& admission,
                                     MemoryBudget& budget, Metrics& metrics,
                                     const ServerOptions& options,
                                     absl::Duration stall_timeout)
    : fs_(fs),
      budget_(budget),
      metrics_(metrics),
      max_memory_bytes_(options.max_memory_bytes),
      openers_(admission.access(), {.num_threads = kNumOpeners,
                                    .per_client = kOpenersOfAClient,
                                    .max_waiting = MaxCallsWaiting(options)}),
      mappers_(admission.access(), {.num_threads = kNumMappers,
                                    .per_client = kNumMappers,
                                    .max_waiting = MaxCallsWaiting(options)}),
      parsers_({.num_threads = kNumParsers,
                .per_client = kParsersOfAClient,
                .max_waiting = MaxCallsWaiting(options)}),
      cache_(fs, openers_, mappers_, budget,
             CheckpointCacheLimits{.disk_timeout = options.disk_timeout}),
      calls_(admission, cache_,
             {.max_streams = options.max_streams,
              .stall_timeout = stall_timeout,
              .disk_timeout = options.disk_timeout}),
      checks_(fs, admission.access(), calls_, budget,
              options.max_memory_bytes) {
  const MemoryShares shares =
      DivideMemory(options.max_memory_bytes, options.num_readers);
  can_read_ = shares.num_readers > 0;
  readers_ = std::make_unique<WindowReaders>(
      fs_, budget_, metrics_,
      WindowReadersOptions{.num_readers = shares.num_readers,
                           .num_readers_per_root = ReadersPerRoot(
                               admission.access(), shares.num_readers),
                           .blocks_per_reader = shares.blocks_per_reader,
                           .idle_bytes = shares.idle_bytes});
  stream_context_ = std::make_unique<StreamContext>(
      StreamContext{cache_, parsers_, *readers_, budget_, metrics_,
                    stall_timeout, options.disk_timeout});
  streams_gauge_ =
      metrics_.AddGauge("tessera_streams", "Calls that are streaming.",
                        [this] { return static_cast<double>(num_streams()); });
}

// Tasks may outlive the call that was cancelled, so stop them first.
CheckpointService::~CheckpointService() {
  streams_gauge_ = nullptr;
  parsers_.Stop();
  checks_.Stop();
  mappers_.Stop();
  openers_.Stop();
}

grpc::ServerUnaryReactor* CheckpointService::Inspect(
    grpc::CallbackServerContext* context, const v1::InspectRequest* request,
    v1::InspectResponse* response) {
  auto* const reactor = new UnaryCall();  // ends itself
  const auto end = [reactor](const absl::Status& status) {
    reactor->Finish(ToRpcStatus(status));
  };
  const absl::StatusOr<Caller> caller = calls_.Admit(*context);
  const absl::StatusOr<SourceSpec> source =
      caller.ok() ? SourceFromProto(request->source(), "source")
                  : absl::StatusOr<SourceSpec>(caller.status());
  if (!source.ok()) {
    end(source.status());
    return reactor;
  }
  CompressIfAsked(*context);
  cache_.Open(
      *caller, *source, reactor->stop(),
      [this, caller = *caller, context, request, response,
       end](absl::StatusOr<std::shared_ptr<SharedCheckpoint>> opened) {
        if (!opened.ok())
          return end(BlameField(opened.status(), "source.path"));
        const std::shared_ptr<SharedCheckpoint> shared = *std::move(opened);
        absl::StatusOr<InspectionPage> page =
            ChoosePage(*shared, *request, page_tokens_,
                       [context] { return context->IsCancelled(); });
        if (!page.ok()) return end(page.status());
        std::vector<uint32_t> objects = page->objects;
        calls_.Locate(caller, *shared, std::move(objects),
                      [this, request, response, end, shared,
                       page = *std::move(page)](const absl::Status& located) {
                        // The values of a damaged file are left out; a file
                        // system that does not answer is an error.
                        if (absl::IsUnavailable(located)) return end(located);
                        FillPage(*shared, *request, page, page_tokens_,
                                 located.ok() && !page.objects.empty(),
                                 *response);
                        end(absl::OkStatus());
                      });
      });
  return reactor;
}

grpc::ServerWriteReactor<v1::GetMetadataResponse>*
CheckpointService::GetMetadata(grpc::CallbackServerContext* context,
                               const v1::GetMetadataRequest* request) {
  Caller caller;
  const auto stream =
      calls_.NewStream<v1::GetMetadataResponse>(*context, caller);
  if (caller.client == nullptr) return stream.get();
  const absl::Status unmapped = CheckUnmapped(request->source(), "source");
  if (!unmapped.ok()) {
    stream->Fail(unmapped);
    return stream.get();
  }
  const auto send = [this, stream, client = caller.account->name()](
                        std::shared_ptr<SharedCheckpoint> shared,
                        absl::StatusOr<CallMemory> memory) {
    if (!memory.ok()) return stream->Fail(memory.status());
    const absl::Status posted =
        openers_.QueueFor(shared->checkpoint().path())
            ->Post(client, [stream, shared,
                            memory = *std::move(memory)]() mutable {
              stream->Send([index = EncodeDcpIndex(shared->checkpoint()),
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
  calls_.OpenFor(stream, caller, request->source(), "source",
                 [this, account = caller.account,
                  send](std::shared_ptr<SharedCheckpoint> shared) {
                   const uint64_t num_bytes =
                       DcpIndexBytes(shared->checkpoint());
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
  const absl::StatusOr<Caller> caller = calls_.Admit(*context);
  if (!caller.ok()) return fail(caller.status());
  if (!can_read_) {
    return fail(RequestTooLarge(
        "max-memory", max_memory_bytes_,
        absl::StrCat("max-memory is ", max_memory_bytes_, " bytes: reading ",
                     "tensors takes ", kMinReadingBytes)));
  }
  const absl::Status begun = calls_.BeginStream(*caller->account);
  if (!begun.ok()) return fail(begun);
  return TensorStream::Start(
      *stream_context_, *context, *caller, *request,
      [this, account = caller->account] { calls_.EndStream(*account); });
}

grpc::ServerWriteReactor<v1::ReadObjectsResponse>*
CheckpointService::ReadObjects(grpc::CallbackServerContext* context,
                               const v1::ReadObjectsRequest* request) {
  Caller caller;
  const auto stream =
      calls_.NewStream<v1::ReadObjectsResponse>(*context, caller);
  if (caller.client == nullptr) return stream.get();
  absl::StatusOr<std::vector<std::string>> globs =
      GlobsFromProto(request->names(), "names");
  if (!globs.ok()) {
    stream->Fail(globs.status());
    return stream.get();
  }
  calls_.OpenFor(
      stream, caller, request->source(), "source",
      [this, stream, caller, filter = NameFilter(*std::move(globs))](
          std::shared_ptr<SharedCheckpoint> shared) {
        const auto& entries = shared->checkpoint().entries();
        std::vector<uint32_t> wanted;
        for (uint32_t i = 0; i < entries.size(); ++i) {
          if (entries[i].object() == nullptr) continue;
          if (i % kNamesPerCheck == 0 && stream->stop().stop_requested()) {
            return stream->Fail(absl::CancelledError("the call was cancelled"));
          }
          if (filter.Matches(entries[i].fqn)) wanted.push_back(i);
        }
        std::vector<uint32_t> to_locate = wanted;
        calls_.Locate(
            caller, *shared, std::move(to_locate),
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

grpc::ServerWriteReactor<v1::VerifyCheckpointResponse>*
CheckpointService::Verify(grpc::CallbackServerContext* context,
                          const v1::VerifyCheckpointRequest* request) {
  return checks_.Verify(context, request);
}

grpc::ServerWriteReactor<v1::DiffResponse>* CheckpointService::Diff(
    grpc::CallbackServerContext* context, const v1::DiffRequest* request) {
  return checks_.Diff(context, request);
}

}  // namespace dcp::server
