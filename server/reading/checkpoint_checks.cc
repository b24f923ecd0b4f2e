// SPDX-License-Identifier: Apache-2.0
// Runs Verify and Diff on separate threads, and watches them.
//
// Tested by tests/server/reading/checkpoint_service_test.cc.
#include "server/reading/checkpoint_checks.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/verify/verify.h"
#include "proto/error_detail.h"
#include "proto/messages/report_messages.h"
#include "proto/messages/request_messages.h"
#include "server/access/disk_timeout.h"
#include "server/access/rooted_file_system.h"
#include "server/memory/call_memory.h"
#include "server/memory/memory_request.h"
#include "server/memory/memory_shares.h"
#include "server/process/task_queue.h"
#include "server/reading/progress_ticker.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

// Calls that run at the same time, per root; further calls wait.
constexpr TaskQueue::Limits kThreads = {
    .num_threads = 3, .per_client = 2, .max_waiting = 64};

// Memory for a call: enough to keep a disk busy.
constexpr uint64_t kCheckMemoryBytes = uint64_t{64} << 20;

// For opening a checkpoint as it was opened before.
OpenOptions ReopenOptions(const SharedCheckpoint& shared,
                          OpenProgress& progress) {
  OpenOptions options = shared.open_options();
  options.progress = &progress;
  return options;
}

// Ends a Verify or a Diff early when the client is gone or the disk hangs.
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

CheckpointChecks::CheckpointChecks(FileSystem& fs, const Access& access,
                                   CheckpointCalls& calls, MemoryBudget& budget,
                                   uint64_t max_memory_bytes)
    : fs_(fs),
      calls_(calls),
      budget_(budget),
      max_memory_bytes_(max_memory_bytes),
      threads_(access, kThreads) {}

template <typename Response>
void CheckpointChecks::Run(
    const std::shared_ptr<MessageStream<Response>>& stream,
    const CheckpointCalls::Caller& caller, const SharedCheckpoint& shared,
    absl::AnyInvocable<void(uint64_t)> check) {
  TaskQueue& threads = *threads_.QueueFor(shared.checkpoint().path());
  const uint64_t num_bytes =
      std::max(std::min(kCheckMemoryBytes, max_memory_bytes_ / kCallsShare),
               kMinMemoryBytes);
  CallMemoryRequest::Ask(
      caller.account, budget_, num_bytes, kMaxMemoryWait,
      [stream, num_bytes, &threads, client = caller.account->name(),
       check = std::move(check)](absl::StatusOr<CallMemory> memory) mutable {
        if (!memory.ok()) return stream->Fail(memory.status());
        const absl::Status posted = threads.Post(
            client,
            [num_bytes, check = std::move(check),
             memory = *std::move(memory)]() mutable { check(num_bytes); });
        if (!posted.ok()) stream->Fail(posted);
      });
}

grpc::ServerWriteReactor<v1::VerifyCheckpointResponse>*
CheckpointChecks::Verify(grpc::CallbackServerContext* context,
                         const v1::VerifyCheckpointRequest* request) {
  using Response = v1::VerifyCheckpointResponse;
  CheckpointCalls::Caller caller;
  const auto stream = calls_.NewStream<Response>(*context, caller);
  if (caller.client == nullptr) return stream.get();
  const absl::StatusOr<double> percent =
      SamplePercentFromProto(request->sample_percent(), "sample_percent");
  const absl::Status unmapped = CheckUnmapped(request->source(), "source");
  for (const absl::Status& status : {percent.status(), unmapped}) {
    if (status.ok()) continue;
    stream->Fail(status);
    return stream.get();
  }
  const auto check = [this, stream, client = caller.client, percent = *percent](
                         const std::shared_ptr<SharedCheckpoint>& shared,
                         uint64_t memory_bytes) {
    const std::string& path = shared->checkpoint().path();
    CheckWatch<Response> watch(
        stream, calls_.limits().disk_timeout,
        DiskTimeoutError(*client, path, calls_.limits().disk_timeout));
    ProgressTicker& ticker = watch.ticker();
    RootedFileSystem fs(fs_, *client);
    absl::StatusOr<VerifyReport> report = VerifyCheckpoint(
        fs, path,
        {.open = ReopenOptions(*shared, ticker.opening()),
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
  calls_.OpenFor(
      stream, caller, request->source(), "source",
      [this, stream, caller, check](std::shared_ptr<SharedCheckpoint> shared) {
        Run(stream, caller, *shared, [check, shared](uint64_t memory_bytes) {
          check(shared, memory_bytes);
        });
      });
  return stream.get();
}

grpc::ServerWriteReactor<v1::DiffResponse>* CheckpointChecks::Diff(
    grpc::CallbackServerContext* context, const v1::DiffRequest* request) {
  using Response = v1::DiffResponse;
  using Shared = std::shared_ptr<SharedCheckpoint>;
  CheckpointCalls::Caller caller;
  const auto stream = calls_.NewStream<Response>(*context, caller);
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
    CheckWatch<Response> watch(stream, calls_.limits().disk_timeout,
                               DiskTimeoutError(*client, a->checkpoint().path(),
                                                calls_.limits().disk_timeout));
    ProgressTicker& ticker = watch.ticker();
    RootedFileSystem fs(fs_, *client);
    absl::StatusOr<DiffReport> report = DiffCheckpoints(
        fs, a->checkpoint().path(), b->checkpoint().path(),
        {.open = ReopenOptions(*a, ticker.opening()),
         .open_b = ReopenOptions(*b, ticker.opening()),
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
  calls_.OpenFor(
      stream, caller, request->a(), "a",
      [this, stream, caller, check, source_b = request->b()](Shared a) {
        calls_.OpenFor(stream, caller, source_b, "b",
                       [this, stream, caller, a, check](Shared b) {
                         Run(stream, caller, *a,
                             [check, a, b](uint64_t memory_bytes) {
                               check(a, b, memory_bytes);
                             });
                       });
      });
  return stream.get();
}

}  // namespace dcp::server
