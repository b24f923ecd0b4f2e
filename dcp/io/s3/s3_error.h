// SPDX-License-Identifier: Apache-2.0
// Converts what went wrong with a request to S3 to absl::Status, which nothing
// else does. A message names the object, the request, the server's status, code
// and id of the request, and says what to check. It never has credentials or
// the query of a URL. Pure; any thread.
#ifndef DCP_IO_S3_S3_ERROR_H_
#define DCP_IO_S3_S3_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/io/s3/s3_answers.h"
#include "dcp/io/s3/s3_request.h"

namespace dcp {

// OK if the answer tells of success.
absl::Status S3Error(absl::string_view bucket_url, absl::string_view key,
                     absl::string_view operation, const S3Answer& answer);

// For one object of a request that concerns several, and succeeded.
absl::Status S3Error(absl::string_view bucket_url, absl::string_view operation,
                     const S3Answer& answer, const S3ErrorText& error);

// The server's code ("NoSuchUpload"); empty where it gave none.
std::string S3ErrorCode(const S3Answer& answer);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_ERROR_H_
