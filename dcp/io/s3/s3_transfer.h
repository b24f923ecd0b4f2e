// SPDX-License-Identifier: Apache-2.0
// S3Transfer: one request on its way through Amazon's client, which calls back
// on its own threads, in any order. Starts the request, can cancel it, restarts
// it if Amazon's client would not, and reports once.
#ifndef DCP_IO_S3_S3_TRANSFER_H_
#define DCP_IO_S3_S3_TRANSFER_H_

#include <aws/common/byte_buf.h>
#include <aws/common/task_scheduler.h>

#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "dcp/io/object/retried_requests.h"
#include "dcp/io/s3/s3_credentials.h"
#include "dcp/io/s3/s3_request.h"
#include "dcp/io/s3/s3_settings.h"
#include "dcp/io/s3/s3_target.h"

struct aws_http_headers;
struct aws_http_message;
struct aws_s3_client;
struct aws_s3_meta_request;
struct aws_s3_meta_request_options;
struct aws_s3_meta_request_result;
struct aws_s3_request_metrics;

namespace dcp {

class S3Transfer {
 public:
  using Done = absl::AnyInvocable<void(S3Answer) &&>;

  // Used by all of a client's transfers; outlives them.
  struct Shared {
    aws_s3_client* client = nullptr;
    S3Target target;
    S3Settings settings;
    std::unique_ptr<S3Credentials> credentials;
  };

  // `done` is called once, on any thread, when the memory in `request` is no
  // longer in use.
  static void Start(Shared& shared, S3Request request, std::stop_token stop,
                    Done done);

 private:
  S3Transfer(Shared& shared, S3Request request, std::stop_token stop,
             Done done);

  void Submit();
  aws_http_message* MakeMessage() const;
  void SetCallbacks(aws_s3_meta_request_options& options);
  void DropHold();

  // Called back by Amazon's client.
  void OnHeaders(const aws_http_headers* headers, int status);
  int OnBody(const aws_byte_cursor& piece);
  void OnReceived(uint64_t num_bytes);
  void LogRetry(const S3Answer& answer);
  void OnTry(aws_s3_meta_request* request, aws_s3_request_metrics* metrics);
  void OnFinished(const aws_s3_meta_request_result& result);
  void OnReleased();

  absl::Duration Elapsed() const;
  bool IsWorthAnotherTry();
  bool MayPass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasChangedOnTheWay() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SubmitLater();
  void Finish();

  Shared& shared_;
  const S3Request request_;
  const std::stop_token stop_;
  Done done_;

  // Begun by Submit.
  aws_s3_meta_request* meta_request_ = nullptr;
  aws_byte_buf into_ = {};
  std::optional<std::stop_callback<std::function<void()>>> stop_callback_;
  // Submit and OnFinished each hold `meta_request_`, so that a request to stop
  // finds it; the last one releases it.
  std::atomic<int> num_holds_ = 0;
  // OnReleased reads this, so that it sees the writes of the threads before it.
  // Amazon's client orders them only internally.
  std::atomic<bool> has_let_go_ = false;

  const absl::Duration begun_ = SteadyNow();
  uint32_t num_retries_ = 0;  // our retries, without those of Amazon's client
  bool has_renewed_ = false;
  aws_task later_ = {};

  absl::Mutex mu_;
  S3Answer answer_ ABSL_GUARDED_BY(mu_);
  std::optional<RetriedRequest> retried_ ABSL_GUARDED_BY(mu_);
  // The error for which we gave up although Amazon's client would not have.
  int hopeless_error_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace dcp

#endif  // DCP_IO_S3_S3_TRANSFER_H_
