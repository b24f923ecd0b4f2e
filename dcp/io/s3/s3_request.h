// SPDX-License-Identifier: Apache-2.0
// S3Request and S3Answer: one request to an S3 server and the answer, as plain
// values. S3Client carries them out; s3_store.cc makes the requests, and
// s3_answers.h and s3_error.h read the answers.
#ifndef DCP_IO_S3_S3_REQUEST_H_
#define DCP_IO_S3_S3_REQUEST_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"

namespace dcp {

// An object's metadata that says which writer made it; see ObjectStore::Begin.
inline constexpr char kS3LabelHeader[] = "x-amz-meta-tessera-id";

struct S3Request {
  // Amazon's name for the operation; permissions are named after it.
  std::string operation;
  std::string method;
  std::string key;    // empty: the bucket itself
  std::string query;  // encoded, without the question mark
  std::vector<std::pair<std::string, std::string>> headers;
  uint32_t max_tries = UINT32_MAX;  // the settings may say fewer

  // The bytes to send: the caller's memory, with a checksum as the settings
  // say, or a text.
  ByteSpan payload;
  std::string text;
  // The destination for an object's range, straight from the socket. Empty: the
  // answer goes to S3Answer::body.
  MutableByteSpan into;
};

struct S3Answer {
  // From Amazon's libraries; 0 if the server reported success.
  int error = 0;
  // The last HTTP status; 0 if the server never answered.
  int status = 0;
  uint32_t num_tries = 0;
  std::string server;  // "https://host[:port]" that was asked
  std::string request_id;
  // The region that the bucket is in, if the server says so.
  std::string region;
  std::string etag;
  // Whether the server computes `etag` from the bytes as they are, not as it
  // encrypts them.
  bool etag_is_of_bytes = true;
  std::string crc32c;  // in base64; empty if the server sends none
  std::string last_modified;
  std::string label;  // the value of kS3LabelHeader
  uint64_t content_length = 0;
  // The answer's body if it did not go elsewhere, or an error's body.
  std::string body;
  uint64_t num_received = 0;  // bytes that arrived in `into`
  // The MD5 of the sent bytes if `etag` differs from it.
  std::string md5_expected;
};

// Percent-encodes everything except letters, digits and "-_.~", and slashes if
// `keep_slashes` is set.
std::string EncodeForUri(absl::string_view text, bool keep_slashes);
// The reverse; a percent sign that begins no escape stays as it is.
std::string DecodeFromUri(absl::string_view text);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_REQUEST_H_
