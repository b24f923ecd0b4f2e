// SPDX-License-Identifier: Apache-2.0
// Turns Arrow's errors into codes of absl::StatusCode and a line of text for
// the user. No other part of the plugin knows the error texts of the libraries
// under Arrow, or meets exceptions. Any thread.
#ifndef PLUGINS_ARROW_ARROW_ERROR_H_
#define PLUGINS_ARROW_ARROW_ERROR_H_

#include <arrow/status.h>

#include <functional>
#include <string>

namespace tessera {

// The codes of absl::StatusCode that a plugin uses.
enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kUnavailable = 14,
  kDataLoss = 15,
};

// An error that the plugin itself found.
arrow::Status Fail(Code code, const std::string& text);

Code FindCode(const arrow::Status& status);

// "gs://bucket/key: get: the error; what to check", without control characters,
// URL queries and the parts that only library authors understand. `url` names
// the bucket or the object.
std::string ErrorText(const std::string& url, const std::string& operation,
                      const arrow::Status& status);

// The status of `work`, which may throw.
arrow::Status Guarded(const std::function<arrow::Status()>& work);

}  // namespace tessera

#endif  // PLUGINS_ARROW_ARROW_ERROR_H_
