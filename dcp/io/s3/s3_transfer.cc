// SPDX-License-Identifier: Apache-2.0
// Carries one request through Amazon's client, with retries.
// Tested by tests/dcp/io/s3/s3_retries_test.cc.
//
// A transfer owns itself and goes through these steps:
//
//   1  Submit gives the request to Amazon's client, which tries it as often as
//      the settings say; OnTry sees each try.
//   2  OnHeaders, OnBody and OnFinished report the last try's result.
//   3  DropHold releases the request when Submit has returned and OnFinished
//      was called, after which a request to stop has nothing to cancel.
//   4  OnReleased comes when nothing uses the memory any more. It begins again
//      at 1, after a while, or ends.

#include "dcp/io/s3/s3_transfer.h"

#include <aws/auth/signing_config.h>
#include <aws/cal/hash.h>
#include <aws/common/error.h>
#include <aws/common/string.h>
#include <aws/http/request_response.h>
#include <aws/io/event_loop.h>
#include <aws/io/io.h>
#include <aws/io/uri.h>
#include <aws/s3/s3_client.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/base/steady_time.h"
#include "dcp/base/unique_bits.h"
#include "dcp/io/s3/aws_runtime.h"

namespace dcp {
namespace {

constexpr int kHttpConflict = 409;
constexpr int kHttpTooManyRequests = 429;

// The number of tries for errors that waiting does not repair, but that
// Amazon's client would retry.
uint32_t MaxTries(int error) {
  switch (error) {
    case AWS_ERROR_S3_REQUEST_TIME_TOO_SKEWED:
    case AWS_IO_DNS_INVALID_NAME:
      return 3;
    case AWS_IO_TLS_ERROR_NEGOTIATION_FAILURE:
      // The library does not report for 10 to 30 s how a handshake failed.
      return 1;
    default:
      return UINT32_MAX;
  }
}

// How often a put is retried if the bytes change on the way.
constexpr uint32_t kMaxRetriesOfChangedPut = 2;

// Empty where OpenSSL is not allowed to compute it.
std::string BodyMd5(aws_byte_cursor body) {
  std::string digest(AWS_MD5_LEN, '\0');
  aws_byte_buf into = aws_byte_buf_from_empty_array(digest.data(), AWS_MD5_LEN);
  const int result =
      aws_md5_compute(AwsRuntime::Get().allocator, &body, &into, 0);
  return result == AWS_OP_SUCCESS ? digest : "";
}

// The MD5 in an ETag, in hexadecimal digits; empty if it contains none.
std::string Md5InEtag(absl::string_view etag) {
  absl::ConsumePrefix(&etag, "\"");
  absl::ConsumeSuffix(&etag, "\"");
  const bool is_md5 = etag.size() == 2 * AWS_MD5_LEN &&
                      std::all_of(etag.begin(), etag.end(), [](char c) {
                        return absl::ascii_isxdigit(static_cast<uint8_t>(c));
                      });
  return is_md5 ? absl::AsciiStrToLower(etag) : "";
}

void AddHeader(aws_http_message* message, absl::string_view name,
               absl::string_view value) {
  aws_http_header header = {};
  header.name = ToCursor(name);
  header.value = ToCursor(value);
  DCP_CHECK(aws_http_message_add_header(message, header) == AWS_OP_SUCCESS);
}

std::string Header(const aws_http_headers* headers, absl::string_view name) {
  aws_byte_cursor value;
  if (aws_http_headers_get(headers, ToCursor(name), &value) != AWS_OP_SUCCESS) {
    return "";
  }
  return std::string(ToView(value));
}

aws_byte_cursor RequestBody(const S3Request& request) {
  if (!request.text.empty()) return ToCursor(request.text);
  return aws_byte_cursor_from_array(request.payload.data(),
                                    request.payload.size());
}

}  // namespace

void S3Transfer::Start(Shared& shared, S3Request request, std::stop_token stop,
                       Done done) {
  (new S3Transfer(shared, std::move(request), std::move(stop), std::move(done)))
      ->Submit();
}

S3Transfer::S3Transfer(Shared& shared, S3Request request, std::stop_token stop,
                       Done done)
    : shared_(shared),
      request_(std::move(request)),
      stop_(std::move(stop)),
      done_(std::move(done)) {}

void S3Transfer::Submit() {
  if (stop_.stop_requested()) {
    {
      absl::MutexLock lock(&mu_);
      answer_.error = AWS_ERROR_S3_CANCELED;
    }
    Finish();
    return;
  }
  const aws_byte_cursor body = RequestBody(request_);
  aws_uri endpoint = {};
  const aws_byte_cursor url = ToCursor(shared_.target.url);
  DCP_CHECK(aws_uri_init_parse(&endpoint, AwsRuntime::Get().allocator, &url) ==
            AWS_OP_SUCCESS);
  aws_s3_meta_request_options options = {};
  options.type = AWS_S3_META_REQUEST_TYPE_DEFAULT;
  options.operation_name = ToCursor(request_.operation);
  options.message = MakeMessage();
  options.endpoint = &endpoint;
  options.request_body = body;
  aws_s3_checksum_config checksum = {};
  if (!request_.payload.empty() &&
      shared_.settings.checksum == S3Checksum::kCrc32c) {
    // Never in a trailer, which other servers do not understand.
    checksum.location = AWS_SCL_HEADER;
    checksum.checksum_algorithm = AWS_SCA_CRC32C;
    options.checksum_config = &checksum;
  }
  if (!request_.into.empty()) {
    options.type = AWS_S3_META_REQUEST_TYPE_GET_OBJECT;
    into_ = aws_byte_buf_from_empty_array(request_.into.data(),
                                          request_.into.size());
    options.recv_buffer = &into_;
  }
  SetCallbacks(options);
  num_holds_ = 2;
  has_let_go_ = false;
  meta_request_ = aws_s3_client_make_meta_request(shared_.client, &options);
  const int error = aws_last_error();
  aws_http_message_release(options.message);
  aws_uri_clean_up(&endpoint);
  if (meta_request_ == nullptr) {
    {
      absl::MutexLock lock(&mu_);
      answer_.error = error;
    }
    Finish();
    return;
  }
  stop_callback_.emplace(stop_,
                         [this] { aws_s3_meta_request_cancel(meta_request_); });
  DropHold();
}

aws_http_message* S3Transfer::MakeMessage() const {
  aws_http_message* const message =
      aws_http_message_new_request(AwsRuntime::Get().allocator);
  aws_http_message_set_request_method(message, ToCursor(request_.method));
  std::string path = shared_.target.path;
  if (!request_.key.empty() || path.empty()) {
    absl::StrAppend(&path, "/",
                    EncodeForUri(request_.key, /*keep_slashes=*/true));
  }
  if (!request_.query.empty()) absl::StrAppend(&path, "?", request_.query);
  aws_http_message_set_request_path(message, ToCursor(path));
  AddHeader(message, "Host", shared_.target.authority);
  for (const auto& [name, value] : request_.headers) {
    AddHeader(message, name, value);
  }
  const aws_byte_cursor body = RequestBody(request_);
  if (request_.method == "PUT" || request_.method == "POST") {
    AddHeader(message, "Content-Length", absl::StrCat(body.len));
  }
  // Without it, servers refuse to remove several objects at once.
  if (!request_.text.empty() ||
      (!request_.payload.empty() &&
       shared_.settings.checksum == S3Checksum::kMd5)) {
    const std::string md5 = BodyMd5(body);
    if (!md5.empty()) {
      AddHeader(message, "Content-MD5", absl::Base64Escape(md5));
    }
  }
  return message;
}

void S3Transfer::SetCallbacks(aws_s3_meta_request_options& options) {
  options.user_data = this;
  options.headers_callback = [](aws_s3_meta_request*,
                                const aws_http_headers* headers, int status,
                                void* self) {
    static_cast<S3Transfer*>(self)->OnHeaders(headers, status);
    return static_cast<int>(AWS_OP_SUCCESS);
  };
  if (request_.into.empty()) {
    options.body_callback = [](aws_s3_meta_request*,
                               const aws_byte_cursor* piece, uint64_t,
                               void* self) {
      return static_cast<S3Transfer*>(self)->OnBody(*piece);
    };
  } else {
    options.progress_callback = [](aws_s3_meta_request*,
                                   const aws_s3_meta_request_progress* progress,
                                   void* self) {
      static_cast<S3Transfer*>(self)->OnReceived(progress->bytes_transferred);
    };
  }
  options.telemetry_callback = [](aws_s3_meta_request* request,
                                  aws_s3_request_metrics* metrics, void* self) {
    static_cast<S3Transfer*>(self)->OnTry(request, metrics);
  };
  options.finish_callback =
      [](aws_s3_meta_request*, const aws_s3_meta_request_result* result,
         void* self) { static_cast<S3Transfer*>(self)->OnFinished(*result); };
  options.shutdown_callback = [](void* self) {
    static_cast<S3Transfer*>(self)->OnReleased();
  };
}

void S3Transfer::DropHold() {
  if (--num_holds_ > 0) return;
  // Waits for a stop request that is in progress.
  stop_callback_.reset();
  has_let_go_.store(true, std::memory_order_release);
  // OnReleased may be called by this, or by another thread at once.
  aws_s3_meta_request_release(std::exchange(meta_request_, nullptr));
}

void S3Transfer::OnHeaders(const aws_http_headers* headers, int status) {
  absl::MutexLock lock(&mu_);
  answer_.status = status;
  answer_.etag = Header(headers, "ETag");
  answer_.etag_is_of_bytes =
      !absl::StartsWith(Header(headers, "x-amz-server-side-encryption"),
                        "aws:") &&
      Header(headers, "x-amz-server-side-encryption-customer-algorithm")
          .empty();
  answer_.crc32c = Header(headers, "x-amz-checksum-crc32c");
  answer_.last_modified = Header(headers, "Last-Modified");
  answer_.label = Header(headers, kS3LabelHeader);
  answer_.region = Header(headers, "x-amz-bucket-region");
  const std::string request_id = Header(headers, "x-amz-request-id");
  if (!request_id.empty()) answer_.request_id = request_id;
  if (!absl::SimpleAtoi(Header(headers, "Content-Length"),
                        &answer_.content_length)) {
    answer_.content_length = 0;
  }
}

int S3Transfer::OnBody(const aws_byte_cursor& piece) {
  absl::MutexLock lock(&mu_);
  if (answer_.body.size() + piece.len > kMaxObjectAnswerBytes) {
    return aws_raise_error(AWS_ERROR_SHORT_BUFFER);
  }
  absl::StrAppend(&answer_.body, ToView(piece));
  return AWS_OP_SUCCESS;
}

// The final length of `into_` is only the announced one.
void S3Transfer::OnReceived(uint64_t num_bytes) {
  absl::MutexLock lock(&mu_);
  answer_.num_received += num_bytes;
}

// Says that this request waits, unless it is one of many and another one has
// just said so.
void S3Transfer::LogRetry(const S3Answer& answer) {
  static std::atomic<int64_t> last_s = 0;
  constexpr int64_t kQuietSeconds = 10;
  const absl::Duration elapsed = Elapsed();
  const int64_t now_s = absl::ToInt64Seconds(SteadyNow());
  int64_t last = last_s;
  if (elapsed < absl::Seconds(kQuietSeconds) || now_s < last + kQuietSeconds ||
      !last_s.compare_exchange_strong(last, now_s)) {
    return;
  }
  DCP_LOG(kWarning) << "event=store_retries server=" << shared_.target.url
                    << " operation=" << request_.operation
                    << " status=" << answer.status
                    << " tries=" << answer.num_tries
                    << " seconds=" << absl::ToInt64Seconds(elapsed);
}

void S3Transfer::OnTry(aws_s3_meta_request* request,
                       aws_s3_request_metrics* metrics) {
  const int error = aws_s3_request_metrics_get_error_code(metrics);
  absl::MutexLock lock(&mu_);
  if (hopeless_error_ != 0) return;  // this one was cancelled
  ++answer_.num_tries;
  int status = 0;
  if (aws_s3_request_metrics_get_response_status_code(metrics, &status) ==
      AWS_OP_SUCCESS) {
    answer_.status = status;
  }
  const aws_string* id = nullptr;
  if (aws_s3_request_metrics_get_request_id(metrics, &id) == AWS_OP_SUCCESS) {
    answer_.request_id = std::string(ToView(aws_byte_cursor_from_string(id)));
  }
  if (error == AWS_ERROR_SUCCESS) return;
  LogRetry(answer_);
  if (answer_.num_tries >= std::min(MaxTries(error), request_.max_tries) ||
      Elapsed() >= absl::Seconds(shared_.settings.give_up_s)) {
    hopeless_error_ = error;
    aws_s3_meta_request_cancel(request);
    return;
  }
  if (!retried_.has_value()) retried_.emplace();
}

absl::Duration S3Transfer::Elapsed() const { return SteadyNow() - begun_; }

void S3Transfer::OnFinished(const aws_s3_meta_request_result& result) {
  if (result.error_response_headers != nullptr) {
    OnHeaders(result.error_response_headers, result.response_status);
  }
  {
    absl::MutexLock lock(&mu_);
    answer_.error = result.error_code;
    if (result.error_response_body != nullptr) {
      const absl::string_view body =
          ToView(aws_byte_cursor_from_buf(result.error_response_body));
      answer_.body = std::string(body.substr(0, kMaxObjectAnswerBytes));
    }
  }
  DropHold();
}

void S3Transfer::OnReleased() {
  DCP_CHECK(has_let_go_.load(std::memory_order_acquire));
  if (!IsWorthAnotherTry()) {
    Finish();
    return;
  }
  SubmitLater();
}

bool S3Transfer::IsWorthAnotherTry() {
  absl::MutexLock lock(&mu_);
  if (!MayPass() || Elapsed() >= absl::Seconds(shared_.settings.give_up_s)) {
    return false;
  }
  if (!retried_.has_value()) retried_.emplace();
  return true;
}

// Amazon's client retries network errors, 500, 502, 503, 504 and the codes that
// mean the same. These errors may pass, too:
bool S3Transfer::MayPass() {
  if (answer_.error == AWS_ERROR_SUCCESS) {
    if (answer_.num_received < into_.len) {
      return num_retries_ < shared_.settings.num_retries;
    }
    return HasChangedOnTheWay() &&
           num_retries_ <
               std::min(shared_.settings.num_retries, kMaxRetriesOfChangedPut);
  }
  if (answer_.error != AWS_ERROR_S3_INVALID_RESPONSE_STATUS) return false;
  // An answer to HEAD has no body, and says 400 for an expired token.
  const bool is_expired =
      answer_.body.empty()
          ? answer_.status == 400 && request_.method == "HEAD"
          : absl::StrContains(answer_.body, "<Code>ExpiredToken");
  if (is_expired && !has_renewed_) {
    has_renewed_ = true;
    shared_.credentials->Renew();
    return true;
  }
  return num_retries_ < shared_.settings.num_retries &&
         (answer_.status == kHttpTooManyRequests ||
          (answer_.status == kHttpConflict &&
           (absl::StrContains(answer_.body, "ConditionalRequestConflict") ||
            absl::StrContains(answer_.body, "OperationAborted"))));
}

// Whether a server that was sent a checksum, and does not say that it has
// compared it, has other bytes than were sent.
bool S3Transfer::HasChangedOnTheWay() {
  if (request_.payload.empty() || !answer_.crc32c.empty() ||
      shared_.settings.checksum != S3Checksum::kCrc32c ||
      !answer_.etag_is_of_bytes) {
    return false;
  }
  const std::string shown = Md5InEtag(answer_.etag);
  if (shown.empty()) return false;
  const std::string sent =
      absl::BytesToHexString(BodyMd5(RequestBody(request_)));
  if (sent.empty() || sent == shown) return false;
  answer_.md5_expected = sent;
  return true;
}

void S3Transfer::SubmitLater() {
  {
    absl::MutexLock lock(&mu_);
    const uint32_t num_tries = answer_.num_tries;
    answer_ = S3Answer();
    answer_.num_tries = num_tries;
  }
  const double longest_ms = shared_.settings.longest_wait_s * 1e3;
  const double wait_ms = std::min(
      longest_ms,
      shared_.settings.first_wait_ms *
          static_cast<double>(1u << std::min<uint32_t>(num_retries_, 16)));
  ++num_retries_;
  // Between 0 and 1. absl::BitGen ends the process where a sandbox denies the
  // kernel's random bytes.
  const double chance = static_cast<double>(UniqueBits() >> 32) * 0x1p-32;
  const uint64_t wait_ns = static_cast<uint64_t>(chance * wait_ms * 1e6);
  aws_event_loop* const loop =
      aws_event_loop_group_get_next_loop(AwsRuntime::Get().event_loops);
  uint64_t now_ns = 0;
  aws_event_loop_current_clock_time(loop, &now_ns);
  aws_task_init(
      &later_,
      [](aws_task*, void* self, aws_task_status) {
        static_cast<S3Transfer*>(self)->Submit();
      },
      this, "S3Transfer");
  aws_event_loop_schedule_task_future(loop, &later_, now_ns + wait_ns);
}

void S3Transfer::Finish() {
  Done done = std::move(done_);
  S3Answer answer;
  {
    absl::MutexLock lock(&mu_);
    answer = std::move(answer_);
    answer.server = shared_.target.url;
    if (answer.error == AWS_ERROR_S3_CANCELED && hopeless_error_ != 0) {
      answer.error = hopeless_error_;
    }
  }
  delete this;
  std::move(done)(std::move(answer));
}

}  // namespace dcp
