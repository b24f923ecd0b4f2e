// SPDX-License-Identifier: Apache-2.0
// Object store names such as "s3://bucket/run/step-1000". Pure; any thread.
#ifndef DCP_IO_OBJECT_OBJECT_URL_H_
#define DCP_IO_OBJECT_OBJECT_URL_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

struct ObjectUrl {
  std::string scheme;  // "s3"
  std::string bucket;
  // without slashes at either end; empty for the bucket itself
  std::string key;
};

// Whether `path` names an object store, not a path on this machine: it begins
// with the scheme s3, gs, abfs, abfss or hdfs, and "://".
bool IsObjectUrl(absl::string_view path);

// InvalidArgument, with the name, unless it has a bucket and a key that every
// store accepts: at most kMaxObjectKeyBytes, without control characters, no
// component that is empty, "." or "..". A slash at the end does not count.
absl::StatusOr<ObjectUrl> ParseObjectUrl(absl::string_view path);

// Whether a scheme's stores take an upload's parts only in order, from first to
// last: all but s3, because they are reached through streams.
bool TakesPartsInOrder(absl::string_view scheme);

}  // namespace dcp

#endif  // DCP_IO_OBJECT_OBJECT_URL_H_
