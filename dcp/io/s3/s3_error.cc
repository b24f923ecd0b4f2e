// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_error.h"

#include <aws/auth/auth.h>
#include <aws/common/error.h>
#include <aws/http/http.h>
#include <aws/io/io.h>
#include <aws/s3/s3.h>

#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace dcp {
namespace {

constexpr size_t kMaxServerText = 300;

struct Meaning {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string advice;  // instructions for the user; may be empty
};

struct KnownCode {
  absl::string_view code;
  absl::StatusCode status;
  absl::string_view advice;
};

constexpr absl::string_view kClockAdvice =
    "check the clock of this machine: requests are valid for 15 minutes";
constexpr absl::string_view kRegionAdvice =
    "the bucket is in another region: set AWS_REGION";
constexpr absl::string_view kKeyAdvice =
    "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile";
constexpr absl::string_view kTokenAdvice =
    "the session's credentials have expired: sign in again, or give the job "
    "credentials that are renewed";
constexpr absl::string_view kBusyAdvice =
    "the server is overloaded: use fewer workers, or a smaller "
    "TESSERA_S3_CONNECTIONS";
constexpr absl::string_view kTryLaterAdvice =
    "the server has trouble of its own: try again later";

constexpr absl::string_view kShorterAdvice =
    "the object is shorter than the server said before";

constexpr KnownCode kKnownCodes[] = {
    {"NoSuchKey", absl::StatusCode::kNotFound, ""},
    {"NoSuchUpload", absl::StatusCode::kNotFound,
     "the upload was finished or aborted, or a lifecycle rule removed it"},
    {"NoSuchBucket", absl::StatusCode::kNotFound,
     "check the name of the bucket, and the endpoint"},
    {"InvalidPart", absl::StatusCode::kFailedPrecondition,
     "the server does not have the parts of this upload as they were put"},
    {"PreconditionFailed", absl::StatusCode::kFailedPrecondition, ""},
    {"ConditionalRequestConflict", absl::StatusCode::kUnavailable,
     "another writer is at work on this object"},
    {"OperationAborted", absl::StatusCode::kUnavailable,
     "another writer is at work on this object"},
    {"RequestTimeTooSkewed", absl::StatusCode::kPermissionDenied, kClockAdvice},
    {"RequestExpired", absl::StatusCode::kPermissionDenied, kClockAdvice},
    {"InvalidAccessKeyId", absl::StatusCode::kPermissionDenied, kKeyAdvice},
    {"SignatureDoesNotMatch", absl::StatusCode::kPermissionDenied, kKeyAdvice},
    {"ExpiredToken", absl::StatusCode::kPermissionDenied, kTokenAdvice},
    {"TokenRefreshRequired", absl::StatusCode::kPermissionDenied, kTokenAdvice},
    {"InvalidToken", absl::StatusCode::kPermissionDenied,
     "check AWS_SESSION_TOKEN, which belongs to one access key"},
    {"PermanentRedirect", absl::StatusCode::kInvalidArgument, kRegionAdvice},
    {"TemporaryRedirect", absl::StatusCode::kInvalidArgument, kRegionAdvice},
    {"AuthorizationHeaderMalformed", absl::StatusCode::kInvalidArgument,
     kRegionAdvice},
    {"IllegalLocationConstraintException", absl::StatusCode::kInvalidArgument,
     kRegionAdvice},
    {"SlowDown", absl::StatusCode::kUnavailable, kBusyAdvice},
    {"ServiceUnavailable", absl::StatusCode::kUnavailable, kBusyAdvice},
    {"TooManyRequests", absl::StatusCode::kUnavailable, kBusyAdvice},
    {"InternalError", absl::StatusCode::kUnavailable, kTryLaterAdvice},
    {"RequestTimeout", absl::StatusCode::kUnavailable,
     "the network is too slow for this many connections: set a smaller "
     "TESSERA_S3_CONNECTIONS"},
    {"QuotaExceeded", absl::StatusCode::kResourceExhausted,
     "the quota of the bucket or its owner is used up"},
    {"EntityTooLarge", absl::StatusCode::kResourceExhausted,
     "the server's limit for one object or part is smaller"},
    {"InsufficientStorage", absl::StatusCode::kResourceExhausted,
     "the server is full"},
    {"BadDigest", absl::StatusCode::kDataLoss,
     "the bytes changed on their way to the server"},
    {"XAmzContentChecksumMismatch", absl::StatusCode::kDataLoss,
     "the bytes changed on their way to the server"},
    {"InvalidRange", absl::StatusCode::kUnavailable, kShorterAdvice},
    {"NotImplemented", absl::StatusCode::kUnimplemented,
     "the server does not know this request; TESSERA_S3_CONDITIONAL=none and "
     "TESSERA_S3_CHECKSUM=none ask less of it"},
    {"XAmzContentSHA256Mismatch", absl::StatusCode::kUnimplemented,
     "the server does not know this checksum: set TESSERA_S3_CHECKSUM=md5"},
};

// The permission, as Amazon's policies name it.
absl::string_view Permission(absl::string_view operation) {
  if (operation == "GetObject" || operation == "HeadObject") {
    return "s3:GetObject, and s3:ListBucket to tell that an object is absent";
  }
  if (operation == "ListObjectsV2" || operation == "HeadBucket") {
    return "s3:ListBucket";
  }
  if (operation == "AbortMultipartUpload") return "s3:AbortMultipartUpload";
  if (operation == "ListParts") return "s3:ListMultipartUploadParts";
  if (operation == "ListMultipartUploads") {
    return "s3:ListBucketMultipartUploads";
  }
  if (operation == "DeleteObject" || operation == "DeleteObjects") {
    return "s3:DeleteObject";
  }
  return "s3:PutObject";
}

std::string DeniedAdvice(absl::string_view operation) {
  return absl::StrCat("the credentials need the permission ",
                      Permission(operation));
}

Meaning MeaningOfCode(absl::string_view code, absl::string_view operation) {
  if (code == "AccessDenied" || code == "AllAccessDisabled" ||
      code == "AccountProblem") {
    return {absl::StatusCode::kPermissionDenied, DeniedAdvice(operation)};
  }
  for (const KnownCode& known : kKnownCodes) {
    if (known.code == code) return {known.status, std::string(known.advice)};
  }
  return {};
}

Meaning MeaningOfStatus(int status, absl::string_view operation) {
  switch (status) {
    case 301:
    case 307:
      return {absl::StatusCode::kInvalidArgument, std::string(kRegionAdvice)};
    case 401:
    case 403:
      return {absl::StatusCode::kPermissionDenied, DeniedAdvice(operation)};
    case 404:
      return {absl::StatusCode::kNotFound, ""};
    case 409:
      return {absl::StatusCode::kUnavailable,
              "another writer is at work on this object"};
    case 412:
      return {absl::StatusCode::kFailedPrecondition, ""};
    case 413:
    case 507:
      return {absl::StatusCode::kResourceExhausted, "the server is full"};
    case 416:
      return {absl::StatusCode::kUnavailable, std::string(kShorterAdvice)};
    case 429:
    case 503:
      return {absl::StatusCode::kUnavailable, std::string(kBusyAdvice)};
    case 501:
      return MeaningOfCode("NotImplemented", operation);
    default:
      if (status >= 500) {
        return {absl::StatusCode::kUnavailable, std::string(kTryLaterAdvice)};
      }
      return {absl::StatusCode::kUnknown, ""};
  }
}

// For errors without an answer that explains them.
Meaning MeaningOfError(int error) {
  switch (error) {
    case AWS_ERROR_S3_CANCELED:
      return {absl::StatusCode::kCancelled, ""};
    case AWS_ERROR_S3_REQUEST_TIME_TOO_SKEWED:
      return {absl::StatusCode::kPermissionDenied, std::string(kClockAdvice)};
    case AWS_ERROR_S3_SLOW_DOWN:
      return {absl::StatusCode::kUnavailable, std::string(kBusyAdvice)};
    case AWS_ERROR_S3_INTERNAL_ERROR:
      return {absl::StatusCode::kUnavailable, std::string(kTryLaterAdvice)};
    case AWS_ERROR_S3_OBJECT_MODIFIED:
      return {absl::StatusCode::kFailedPrecondition, ""};
    case AWS_ERROR_S3_INVALID_CONTENT_RANGE_HEADER:
    case AWS_ERROR_S3_MISSING_CONTENT_RANGE_HEADER:
    case AWS_ERROR_S3_INVALID_CONTENT_LENGTH_HEADER:
    case AWS_ERROR_S3_MISSING_CONTENT_LENGTH_HEADER:
    case AWS_ERROR_S3_RESPONSE_CHECKSUM_MISMATCH:
    case AWS_ERROR_SHORT_BUFFER:
    case AWS_ERROR_DEST_COPY_TOO_SMALL:
      return {absl::StatusCode::kUnavailable,
              "the server, or a proxy before it, sends other bytes than were "
              "asked for"};
    case AWS_IO_DNS_INVALID_NAME:
    case AWS_IO_DNS_QUERY_FAILED:
      return {absl::StatusCode::kUnavailable,
              "the name of the server is not known: check AWS_ENDPOINT_URL, "
              "AWS_REGION and the network"};
    case AWS_IO_TLS_ERROR_NEGOTIATION_FAILURE:
      return {absl::StatusCode::kUnavailable,
              "TLS failed: check that the endpoint speaks https, and its "
              "certificate against AWS_CA_BUNDLE"};
    default:
      if (error / static_cast<int>(AWS_ERROR_ENUM_STRIDE) ==
          AWS_C_AUTH_PACKAGE_ID) {
        return {absl::StatusCode::kPermissionDenied, std::string(kKeyAdvice)};
      }
      return {absl::StatusCode::kUnavailable,
              "check the network and AWS_ENDPOINT_URL"};
  }
}

// A server's text, made fit for one line in a log: without control characters,
// with bounded length, and without a URL's query.
std::string ServerText(absl::string_view text) {
  std::string clean;
  for (const char c : text.substr(0, kMaxServerText)) {
    if (c == '?') break;
    clean.push_back(absl::ascii_isprint(static_cast<uint8_t>(c)) ? c : ' ');
  }
  return clean;
}

// The proxy setting that applies to requests to `server`; Amazon's client reads
// the same variables.
std::string ProxyNote(absl::string_view server) {
  const bool has_tls = absl::StartsWith(server, "https:");
  for (const char* const name : {has_tls ? "https_proxy" : "http_proxy",
                                 has_tls ? "HTTPS_PROXY" : "HTTP_PROXY"}) {
    const char* const proxy = std::getenv(name);
    if (proxy == nullptr || *proxy == '\0') continue;
    return absl::StrCat(" (", name, " is set, NO_PROXY leaves out hosts)");
  }
  return "";
}

absl::Status Compose(absl::string_view bucket_url, absl::string_view key,
                     absl::string_view operation, const Meaning& meaning,
                     absl::string_view what, const S3Answer& answer) {
  std::string message(bucket_url);
  if (!key.empty()) absl::StrAppend(&message, "/", key);
  absl::StrAppend(&message, ": ", operation, ": ", what);
  if (!answer.request_id.empty()) {
    absl::StrAppend(&message, " (request ", ServerText(answer.request_id), ")");
  }
  if (answer.num_tries > 1) {
    absl::StrAppend(&message, " after ", answer.num_tries, " tries");
  }
  if (!meaning.advice.empty()) absl::StrAppend(&message, "; ", meaning.advice);
  return absl::Status(meaning.code, message);
}

std::string ServerErrorText(const S3ErrorText& error) {
  std::string what = ServerText(error.code);
  const std::string message = ServerText(error.message);
  if (!message.empty() && message != what) {
    absl::StrAppend(&what, ": ", message);
  }
  return what;
}

}  // namespace

absl::Status S3Error(absl::string_view bucket_url, absl::string_view key,
                     absl::string_view operation, const S3Answer& answer) {
  if (answer.error == AWS_ERROR_SUCCESS) return absl::OkStatus();
  // Amazon's client keeps the answer only for these.
  const bool has_answer =
      answer.error == AWS_ERROR_S3_INVALID_RESPONSE_STATUS ||
      answer.error == AWS_ERROR_S3_NON_RECOVERABLE_ASYNC_ERROR;
  if (!has_answer) {
    const std::string status =
        answer.status >= 300 ? absl::StrCat(" (HTTP ", answer.status, ")") : "";
    // Without an answer, the message names the host.
    return Compose(
        bucket_url, key, operation, MeaningOfError(answer.error),
        absl::StrCat(answer.server, answer.server.empty() ? "" : ": ",
                     aws_error_str(answer.error), status,
                     ProxyNote(answer.server)),
        answer);
  }
  const std::optional<S3ErrorText> text = ParseS3Error(answer.body);
  std::string what = absl::StrCat("HTTP ", answer.status);
  Meaning meaning;
  if (text.has_value()) {
    absl::StrAppend(&what, " ", ServerErrorText(*text));
    meaning = MeaningOfCode(text->code, operation);
  }
  if (meaning.code == absl::StatusCode::kUnknown) {
    meaning = MeaningOfStatus(answer.status, operation);
    if (!text.has_value() &&
        meaning.code == absl::StatusCode::kPermissionDenied) {
      absl::StrAppend(&meaning.advice,
                      " (the server gives no reason; it may also be the clock "
                      "of this machine, or expired credentials)");
    }
  }
  return Compose(bucket_url, key, operation, meaning, what, answer);
}

absl::Status S3Error(absl::string_view bucket_url, absl::string_view operation,
                     const S3Answer& answer, const S3ErrorText& error) {
  Meaning meaning = MeaningOfCode(error.code, operation);
  return Compose(bucket_url, error.key, operation, meaning,
                 ServerErrorText(error), answer);
}

std::string S3ErrorCode(const S3Answer& answer) {
  const std::optional<S3ErrorText> text = ParseS3Error(answer.body);
  return text.has_value() ? text->code : "";
}

}  // namespace dcp
