// SPDX-License-Identifier: Apache-2.0
// What went wrong in Arrow, as the codes of absl::StatusCode and a line of text
// for the user. The only place of the plugin that knows what the libraries
// under Arrow say, and the only one that meets exceptions. Any thread.
#ifndef PLUGINS_ARROW_ARROW_ERROR_H_
#define PLUGINS_ARROW_ARROW_ERROR_H_

#include <arrow/status.h>

#include <functional>
#include <string>

namespace tessera {

// Those of absl::StatusCode that a plugin uses.
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

// An error of our own.
arrow::Status Fail(Code code, const std::string& text);

Code CodeOf(const arrow::Status& status);

// "gs://bucket/key: get: what was said; what to check", without control
// characters, queries of URLs and what only the library's authors understand.
// `url` is that of the bucket or of the object.
std::string ErrorText(const std::string& url, const std::string& operation,
                      const arrow::Status& status);

// The status of `work`, which may throw.
arrow::Status Guarded(const std::function<arrow::Status()>& work);

}  // namespace tessera

#endif  // PLUGINS_ARROW_ARROW_ERROR_H_
