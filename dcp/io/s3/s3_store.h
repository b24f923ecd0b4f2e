// SPDX-License-Identifier: Apache-2.0
// OpenS3Store: a bucket on Amazon S3, or on any server that speaks the S3
// protocol, as an ObjectStore. README.md lists the requirements for servers and
// their differences.
#ifndef DCP_IO_S3_S3_STORE_H_
#define DCP_IO_S3_S3_STORE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/object/object_store.h"
#include "dcp/io/s3/s3_settings.h"

namespace dcp {

// Finds credentials and asks for one key in the bucket, so that a wrong clock,
// wrong credentials, a wrong region or a wrong bucket name is reported here.
// With Amazon, the bucket's region replaces the region in `settings`. Blocks.
// Each store has connections of its own, so a process should have one for each
// bucket. Not after a fork, see aws_runtime.h.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenS3Store(
    absl::string_view bucket, const S3Settings& settings);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_STORE_H_
