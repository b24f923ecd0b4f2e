// SPDX-License-Identifier: Apache-2.0
// Differences between servers, and the way each is handled:
//
//   If-None-Match at the end    not in radosgw 16: on all servers but Amazon,
//   of an upload                Head looks before
//   ETag of a finished upload   not needed: Head returns it (radosgw has none)
//   If-Match in a put           Amazon only; on others Head compares before,
//                               because radosgw 16 refuses the right ETag
//   checksums of parts          Amazon requires all parts' checksums to finish
//                               an upload that began with checksums; they are
//                               in the answer to each part, and in the list of
//                               parts, also for another process's parts
//   bytes that change on the    if the answer has no checksum, a part's ETag is
//   way to the server           compared with its MD5
//   an upload that is gone      radosgw answers a request to finish with a
//                               server error; the list of parts says clearly
//                               that the upload is gone
//   the list of parts           not every server has one: only an upload that
//                               another process began needs it
//   an upload finished twice    after a lost answer, Amazon may say that there
//                               is no such upload: the object's size decides
//   keys in a list of uploads   radosgw encodes them on request without saying
//                               so, and is not asked to

#include "dcp/io/s3/s3_store.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/s3/s3_answers.h"
#include "dcp/io/s3/s3_bodies.h"
#include "dcp/io/s3/s3_client.h"
#include "dcp/io/s3/s3_error.h"

namespace dcp {
namespace {

constexpr int kHttpPreconditionFailed = 412;
// After this many tries to finish an upload, a list shows whether it is gone.
constexpr uint32_t kTriesBeforeList = 3;

std::string Value(absl::string_view text) {
  return EncodeForUri(text, /*keep_slashes=*/false);
}

S3Request Request(absl::string_view operation, absl::string_view method,
                  absl::string_view key) {
  S3Request request;
  request.operation = std::string(operation);
  request.method = std::string(method);
  request.key = std::string(key);
  return request;
}

absl::Status WithCode(absl::StatusCode code, const absl::Status& status,
                      absl::string_view why) {
  return absl::Status(code, absl::StrCat(status.message(), "; ", why));
}

class S3Store final : public ObjectStore {
 public:
  S3Store(absl::string_view bucket, const S3Settings& settings,
          std::unique_ptr<S3Client> client)
      : url_(absl::StrCat("s3://", bucket)),
        settings_(settings),
        client_(std::move(client)) {}

  std::string url() const override { return url_; }
  bool has_conditions() const override { return settings_.conditional; }
  bool lists_uploads() const override { return true; }
  bool has_labels() const override { return true; }

  void Get(absl::string_view key, absl::string_view etag, uint64_t offset,
           MutableByteSpan into, std::stop_token stop, Done done) override;
  void Put(absl::string_view key, ByteSpan bytes, const PutCondition& condition,
           std::stop_token stop, PutDone done) override;
  void PutPart(absl::string_view key, absl::string_view upload, uint32_t number,
               ByteSpan bytes, std::stop_token stop, PutPartDone done) override;

  absl::StatusOr<ObjectInfo> Head(absl::string_view key) override;
  absl::StatusOr<ObjectPage> List(absl::string_view prefix, bool by_folder,
                                  absl::string_view after) override;
  absl::Status Remove(absl::Span<const std::string> keys) override;

  absl::StatusOr<std::string> Begin(absl::string_view key,
                                    absl::string_view label) override;
  absl::Status Finish(absl::string_view key, absl::string_view upload,
                      absl::Span<const ObjectPart> parts,
                      bool replaces) override;
  absl::Status Abort(absl::string_view key, absl::string_view upload) override;
  absl::StatusOr<std::vector<ObjectPart>> Parts(
      absl::string_view key, absl::string_view upload) override;
  absl::StatusOr<UploadPage> Uploads(absl::string_view prefix,
                                     absl::string_view after) override;

 private:
  // The status of `answer` to `operation`; OK for success.
  absl::Status AnswerStatus(absl::string_view key, absl::string_view operation,
                            const S3Answer& answer) const {
    return S3Error(url_, key, operation, answer);
  }
  // The same for an answer that did not parse: it was cut or changed on the
  // way, so it contains no facts about objects.
  absl::Status Unexpected(absl::string_view key, absl::string_view operation,
                          const absl::Status& status) const {
    return absl::UnavailableError(absl::StrCat(url_, key.empty() ? "" : "/",
                                               key, ": ", operation, ": ",
                                               status.message()));
  }

  void StartPut(S3Request request, PutCondition::Kind condition,
                std::stop_token stop, PutDone done);
  absl::Status CheckPut(absl::string_view key, absl::string_view operation,
                        const S3Answer& answer) const;
  absl::Status ExistsError(absl::string_view key) const {
    return absl::AlreadyExistsError(absl::StrCat(
        url_, "/", key,
        ": another writer has put an object there in the meantime"));
  }
  absl::Status RemoveOne(const std::string& key);
  absl::StatusOr<ObjectInfo> ToObjectInfo(absl::string_view key,
                                          const S3Answer& answer) const;
  absl::Status CheckFinished(absl::string_view key,
                             absl::Span<const ObjectPart> parts,
                             const absl::Status& status);

  const std::string url_;
  const S3Settings settings_;
  // The last, because the destructor waits for requests that use the other
  // members.
  const std::unique_ptr<S3Client> client_;
};

void S3Store::Get(absl::string_view key, absl::string_view etag,
                  uint64_t offset, MutableByteSpan into, std::stop_token stop,
                  Done done) {
  S3Request request = Request("GetObject", "GET", key);
  request.into = into;
  request.headers = {
      {"Range", absl::StrCat("bytes=", offset, "-", offset + into.size() - 1)},
      {"If-Match", std::string(etag)}};
  client_->Start(
      std::move(request), std::move(stop),
      [this, key = std::string(key), etag = std::string(etag),
       size = into.size(), done = std::move(done)](S3Answer answer) mutable {
        absl::Status status = AnswerStatus(key, "GetObject", answer);
        const absl::string_view replaced =
            "it was replaced while it was read: read it again from the start";
        if (absl::IsFailedPrecondition(status)) {
          status = WithCode(status.code(), status, replaced);
        } else if (status.ok() && answer.etag != etag) {
          status = absl::FailedPreconditionError(
              absl::StrCat(url_, "/", key, " has the ETag ", answer.etag,
                           ", not ", etag, ": ", replaced));
        } else if (status.ok() && answer.num_received != size) {
          status = absl::UnavailableError(absl::StrCat(
              url_, "/", key,
              ": GetObject: the server, or a proxy before it, sent ",
              answer.num_received, " bytes of ", size, " in each of ",
              answer.num_tries, " tries; the other bytes are unknown"));
        }
        std::move(done)(std::move(status));
      });
}

void S3Store::Put(absl::string_view key, ByteSpan bytes,
                  const PutCondition& condition, std::stop_token stop,
                  PutDone done) {
  S3Request request = Request("PutObject", "PUT", key);
  request.payload = bytes;
  const PutCondition::Kind kind =
      settings_.conditional ? condition.kind : PutCondition::Kind::kAlways;
  if (kind == PutCondition::Kind::kIfAbsent) {
    request.headers = {{"If-None-Match", "*"}};
  }
  if (kind != PutCondition::Kind::kIfEtag) {
    StartPut(std::move(request), kind, std::move(stop), std::move(done));
    return;
  }
  if (settings_.endpoint.empty()) {
    request.headers = {{"If-Match", condition.etag}};
    StartPut(std::move(request), kind, std::move(stop), std::move(done));
    return;
  }
  S3Request head = Request("HeadObject", "HEAD", request.key);
  client_->Start(
      std::move(head), stop,
      [this, request = std::move(request), etag = condition.etag, stop,
       done = std::move(done)](S3Answer answer) mutable {
        absl::Status status = AnswerStatus(request.key, "HeadObject", answer);
        if (status.ok() && answer.etag == etag) {
          StartPut(std::move(request), PutCondition::Kind::kIfEtag,
                   std::move(stop), std::move(done));
          return;
        }
        if (status.ok() || absl::IsNotFound(status)) {
          status = absl::FailedPreconditionError(absl::StrCat(
              url_, "/", request.key, " ",
              status.ok() ? absl::StrCat("has the ETag ", answer.etag)
                          : "is gone",
              ", expected ", etag, ": somebody else wrote or removed it"));
        }
        std::move(done)(std::move(status));
      });
}

// Whether the server has the bytes that were sent.
absl::Status S3Store::CheckPut(absl::string_view key,
                               absl::string_view operation,
                               const S3Answer& answer) const {
  DCP_RETURN_IF_ERROR(AnswerStatus(key, operation, answer));
  if (answer.etag.empty()) {
    return absl::DataLossError(absl::StrCat(url_, "/", key, ": ", operation,
                                            ": the answer has no ETag"));
  }
  if (answer.md5_expected.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      url_, "/", key, ": ", operation,
      ": the server has other bytes than were sent: their ETag is ",
      answer.etag, ", and the MD5 of the sent bytes is ", answer.md5_expected,
      "; they changed on their way, or the ETags of this server are not MD5s: "
      "then set TESSERA_S3_CHECKSUM=md5"));
}

void S3Store::StartPut(S3Request request, PutCondition::Kind condition,
                       std::stop_token stop, PutDone done) {
  std::string key = request.key;
  std::string operation = request.operation;
  client_->Start(std::move(request), std::move(stop),
                 [this, key = std::move(key), operation = std::move(operation),
                  condition, done = std::move(done)](S3Answer answer) mutable {
                   absl::Status status = CheckPut(key, operation, answer);
                   if (status.ok()) {
                     std::move(done)(std::move(answer.etag));
                     return;
                   }
                   if (condition == PutCondition::Kind::kIfAbsent &&
                       absl::IsFailedPrecondition(status)) {
                     status = WithCode(absl::StatusCode::kAlreadyExists, status,
                                       "there is such an object already");
                   } else if (condition == PutCondition::Kind::kIfEtag &&
                              (absl::IsFailedPrecondition(status) ||
                               absl::IsNotFound(status))) {
                     status =
                         WithCode(absl::StatusCode::kFailedPrecondition, status,
                                  "somebody else wrote or removed it");
                   }
                   std::move(done)(std::move(status));
                 });
}

void S3Store::PutPart(absl::string_view key, absl::string_view upload,
                      uint32_t number, ByteSpan bytes, std::stop_token stop,
                      PutPartDone done) {
  S3Request request = Request("UploadPart", "PUT", key);
  request.query =
      absl::StrCat("partNumber=", number, "&uploadId=", Value(upload));
  request.payload = bytes;
  client_->Start(
      std::move(request), std::move(stop),
      [this, key = std::string(key), number, size = bytes.size(),
       done = std::move(done)](S3Answer answer) mutable {
        const absl::Status status = CheckPut(key, "UploadPart", answer);
        if (!status.ok()) return std::move(done)(status);
        std::move(done)(ObjectPart{.number = number,
                                   .size = size,
                                   .etag = std::move(answer.etag),
                                   .crc32c = std::move(answer.crc32c)});
      });
}

absl::StatusOr<ObjectInfo> S3Store::ToObjectInfo(absl::string_view key,
                                                 const S3Answer& answer) const {
  ObjectInfo info;
  info.key = std::string(key);
  info.size = answer.content_length;
  info.etag = answer.etag;
  const absl::StatusOr<int64_t> time = ParseHttpTime(answer.last_modified);
  if (!time.ok()) return Unexpected(key, "HeadObject", time.status());
  info.modified_ns = *time;
  info.label = answer.label;
  return info;
}

absl::StatusOr<ObjectInfo> S3Store::Head(absl::string_view key) {
  S3Request request = Request("HeadObject", "HEAD", key);
  const S3Answer answer = client_->Call(std::move(request));
  DCP_RETURN_IF_ERROR(AnswerStatus(key, "HeadObject", answer));
  return ToObjectInfo(key, answer);
}

absl::StatusOr<ObjectPage> S3Store::List(absl::string_view prefix,
                                         bool by_folder,
                                         absl::string_view after) {
  S3Request request = Request("ListObjectsV2", "GET", "");
  request.query =
      absl::StrCat("list-type=2&encoding-type=url&prefix=", Value(prefix));
  if (by_folder) absl::StrAppend(&request.query, "&delimiter=%2F");
  if (!after.empty()) {
    absl::StrAppend(&request.query, "&continuation-token=", Value(after));
  }
  const S3Answer answer = client_->Call(std::move(request));
  DCP_RETURN_IF_ERROR(AnswerStatus(prefix, "ListObjectsV2", answer));
  absl::StatusOr<ObjectPage> page = ParseS3Objects(answer.body, prefix);
  if (!page.ok()) return Unexpected(prefix, "ListObjectsV2", page.status());
  return page;
}

absl::Status S3Store::RemoveOne(const std::string& key) {
  S3Request request = Request("DeleteObject", "DELETE", key);
  const absl::Status status =
      AnswerStatus(key, "DeleteObject", client_->Call(std::move(request)));
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status S3Store::Remove(absl::Span<const std::string> keys) {
  if (keys.empty()) return absl::OkStatus();
  if (keys.size() == 1) return RemoveOne(keys[0]);
  S3Request request = Request("DeleteObjects", "POST", "");
  request.query = "delete";
  request.text = RemovalBody(keys);
  const S3Answer answer = client_->Call(std::move(request));
  DCP_RETURN_IF_ERROR(AnswerStatus("", "DeleteObjects", answer));
  const absl::StatusOr<std::vector<S3ErrorText>> errors =
      ParseS3Removed(answer.body);
  if (!errors.ok()) return Unexpected("", "DeleteObjects", errors.status());
  for (const S3ErrorText& error : *errors) {
    if (error.code == "NoSuchKey") continue;
    return S3Error(url_, "DeleteObjects", answer, error);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> S3Store::Begin(absl::string_view key,
                                           absl::string_view label) {
  S3Request request = Request("CreateMultipartUpload", "POST", key);
  request.query = "uploads";
  // Amazon takes parts' checksums only if the upload began with them.
  if (settings_.checksum == S3Checksum::kCrc32c) {
    request.headers = {{"x-amz-checksum-algorithm", "CRC32C"}};
  }
  if (!label.empty()) {
    request.headers.emplace_back(kS3LabelHeader, std::string(label));
  }
  const S3Answer answer = client_->Call(std::move(request));
  DCP_RETURN_IF_ERROR(AnswerStatus(key, "CreateMultipartUpload", answer));
  absl::StatusOr<std::string> id = ParseS3UploadId(answer.body);
  if (!id.ok()) return Unexpected(key, "CreateMultipartUpload", id.status());
  return id;
}

absl::Status S3Store::Finish(absl::string_view key, absl::string_view upload,
                             absl::Span<const ObjectPart> parts,
                             bool replaces) {
  S3Request request = Request("CompleteMultipartUpload", "POST", key);
  request.query = absl::StrCat("uploadId=", Value(upload));
  request.text = CompletionBody(parts);
  if (!replaces && settings_.conditional) {
    request.headers = {{"If-None-Match", "*"}};
    const absl::Status there = settings_.endpoint.empty()
                                   ? absl::NotFoundError("")
                                   : Head(key).status();
    if (there.ok()) return ExistsError(key);
    if (!absl::IsNotFound(there)) return there;
  }
  S3Request first = request;
  first.max_tries = kTriesBeforeList;
  S3Answer answer = client_->Call(std::move(first));
  absl::Status status = AnswerStatus(key, "CompleteMultipartUpload", answer);
  bool may_be_done = answer.num_tries > 1;
  if (absl::IsUnavailable(status)) {
    may_be_done = true;
    const absl::Status listed = Parts(key, upload).status();
    if (absl::IsNotFound(listed)) {
      status = listed;
    } else {
      answer = client_->Call(std::move(request));
      status = AnswerStatus(key, "CompleteMultipartUpload", answer);
    }
  }
  if (absl::IsNotFound(status) && may_be_done && replaces) {
    return CheckFinished(key, parts, status);
  }
  if (!replaces && answer.status == kHttpPreconditionFailed) {
    return ExistsError(key);
  }
  return status;
}

// Whether an earlier try with a lost answer has finished the upload.
absl::Status S3Store::CheckFinished(absl::string_view key,
                                    absl::Span<const ObjectPart> parts,
                                    const absl::Status& status) {
  const absl::StatusOr<ObjectInfo> info = Head(key);
  if (!info.ok()) return status;
  uint64_t size = 0;
  for (const ObjectPart& part : parts) size += part.size;
  absl::string_view etag = info->etag;
  absl::ConsumeSuffix(&etag, "\"");
  const bool is_ours = info->size == size &&
                       absl::EndsWith(etag, absl::StrCat("-", parts.size()));
  return is_ours ? absl::OkStatus() : status;
}

absl::Status S3Store::Abort(absl::string_view key, absl::string_view upload) {
  S3Request request = Request("AbortMultipartUpload", "DELETE", key);
  request.query = absl::StrCat("uploadId=", Value(upload));
  const absl::Status status = AnswerStatus(key, "AbortMultipartUpload",
                                           client_->Call(std::move(request)));
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<ObjectPart>> S3Store::Parts(
    absl::string_view key, absl::string_view upload) {
  std::vector<ObjectPart> parts;
  std::string next;
  do {
    S3Request request = Request("ListParts", "GET", key);
    request.query = absl::StrCat("uploadId=", Value(upload));
    if (!next.empty()) {
      absl::StrAppend(&request.query, "&part-number-marker=", Value(next));
    }
    const S3Answer answer = client_->Call(std::move(request));
    DCP_RETURN_IF_ERROR(AnswerStatus(key, "ListParts", answer));
    absl::StatusOr<S3PartsPage> page = ParseS3Parts(answer.body);
    if (!page.ok()) return Unexpected(key, "ListParts", page.status());
    for (ObjectPart& part : page->parts) {
      if (!parts.empty() && part.number <= parts.back().number) {
        return Unexpected(
            key, "ListParts",
            absl::DataLossError(absl::StrCat(
                "part ", part.number, " follows part ", parts.back().number)));
      }
      parts.push_back(std::move(part));
    }
    // Numbers rise and are bounded, so that the list ends.
    next = page->parts.empty() ? "" : std::move(page->next);
  } while (!next.empty());
  return parts;
}

absl::StatusOr<UploadPage> S3Store::Uploads(absl::string_view prefix,
                                            absl::string_view after) {
  S3Request request = Request("ListMultipartUploads", "GET", "");
  request.query = absl::StrCat("uploads&prefix=", Value(prefix));
  if (!after.empty()) absl::StrAppend(&request.query, "&", after);
  const S3Answer answer = client_->Call(std::move(request));
  DCP_RETURN_IF_ERROR(AnswerStatus(prefix, "ListMultipartUploads", answer));
  absl::StatusOr<UploadPage> page = ParseS3Uploads(answer.body);
  if (!page.ok()) {
    return Unexpected(prefix, "ListMultipartUploads", page.status());
  }
  return page;
}

// The first request to a bucket: the answer to HEAD would not give a reason.
S3Answer Probe(S3Client& client) {
  S3Request request = Request("ListObjectsV2", "GET", "");
  request.query = "list-type=2&max-keys=1";
  return client.Call(std::move(request));
}

std::string BucketRegion(const S3Answer& answer) {
  if (!answer.region.empty()) return answer.region;
  const std::optional<S3ErrorText> error = ParseS3Error(answer.body);
  return error.has_value() ? error->region : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectStore>> OpenS3Store(
    absl::string_view bucket, const S3Settings& settings) {
  const std::string url = absl::StrCat("s3://", bucket);
  S3Settings used = settings;
  absl::StatusOr<std::unique_ptr<S3Client>> client =
      S3Client::Make(bucket, used);
  if (!client.ok()) return Annotate(client.status(), url);
  S3Answer answer = Probe(**client);
  absl::Status status = S3Error(url, "", "ListObjectsV2", answer);
  const std::string region = BucketRegion(answer);
  if (!status.ok() && !region.empty() && region != used.region) {
    used.region = region;
    client = S3Client::Make(bucket, used);
    if (!client.ok()) return Annotate(client.status(), url);
    answer = Probe(**client);
    status = S3Error(url, "", "ListObjectsV2", answer);
  }
  // Reading and writing objects may be allowed where listing them is not.
  if (!status.ok() && S3ErrorCode(answer) != "AccessDenied") return status;
  return std::make_unique<S3Store>(bucket, used, *std::move(client));
}

}  // namespace dcp
