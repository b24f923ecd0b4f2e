// SPDX-License-Identifier: Apache-2.0
// S3Request and S3Answer: one request to an S3 server and what came back, as
// plain values. S3Client carries them out; s3_store.cc makes the requests, and
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

// Metadata of an object that says which writer made it; see
// ObjectStore::Begin.
inline constexpr char kS3LabelHeader[] = "x-amz-meta-tessera-id";

struct S3Request {
  // What Amazon calls it; permissions are named after it.
  std::string operation;
  std::string method;
  std::string key;    // empty: the bucket itself
  std::string query;  // encoded, without the question mark
  std::vector<std::pair<std::string, std::string>> headers;
  uint32_t max_tries = UINT32_MAX;  // the settings may say fewer

  // What is sent: memory of the caller, with a checksum as the settings say, or
  // a text.
  ByteSpan payload;
  std::string text;
  // Where a range of an object goes, straight from the socket. Empty: the
  // answer goes to S3Answer::body.
  MutableByteSpan into;
};

struct S3Answer {
  // Of Amazon's libraries; 0 where the server answered with success.
  int error = 0;
  // The last status of HTTP; 0 where the server never answered.
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
  std::string crc32c;  // in base64; empty where the server names none
  std::string last_modified;
  std::string label;  // that of kS3LabelHeader
  uint64_t content_length = 0;
  // Of an answer that did not go elsewhere, or of an error.
  std::string body;
  uint64_t num_received = 0;  // bytes that arrived in `into`
  // The MD5 of what was sent, where it is not the one that `etag` shows.
  std::string md5_expected;
};

// Percent-encodes everything but letters, digits and "-_.~", and slashes where
// `keep_slashes` is set.
std::string EncodeForUri(absl::string_view text, bool keep_slashes);
// The reverse; a percent sign that begins no escape stays as it is.
std::string DecodeFromUri(absl::string_view text);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_REQUEST_H_
