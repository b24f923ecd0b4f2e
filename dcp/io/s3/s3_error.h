// SPDX-License-Identifier: Apache-2.0
// Converts failed S3 requests to absl::Status; no other file does this. A
// message names the object, the request, the server's status, code and request
// id, and says where to look. It never contains credentials or a URL's query.
// Pure; any thread.
#ifndef DCP_IO_S3_S3_ERROR_H_
#define DCP_IO_S3_S3_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/io/s3/s3_answers.h"
#include "dcp/io/s3/s3_request.h"

namespace dcp {

// OK if the answer means success.
absl::Status S3Error(absl::string_view bucket_url, absl::string_view key,
                     absl::string_view operation, const S3Answer& answer);

// For one object within a successful request for several objects.
absl::Status S3Error(absl::string_view bucket_url, absl::string_view operation,
                     const S3Answer& answer, const S3ErrorText& error);

// The server's code ("NoSuchUpload"); empty if there is none.
std::string S3ErrorCode(const S3Answer& answer);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_ERROR_H_
