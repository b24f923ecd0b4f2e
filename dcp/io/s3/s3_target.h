// SPDX-License-Identifier: Apache-2.0
// S3Target: the destination for a bucket's requests: scheme, host, and the part
// of the path that names the bucket. Pure.
#ifndef DCP_IO_S3_S3_TARGET_H_
#define DCP_IO_S3_S3_TARGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/s3/s3_settings.h"

namespace dcp {

struct S3Target {
  std::string url;        // "https://host[:port]"
  std::string authority;  // "host[:port]"
  std::string path;       // "[/path]/bucket", without a bucket in the host
  std::string region;
  bool has_tls = true;
};

// InvalidArgument for a name that no bucket can have.
absl::StatusOr<S3Target> FindS3Target(absl::string_view bucket,
                                      const S3Settings& settings);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_TARGET_H_
