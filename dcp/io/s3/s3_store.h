// SPDX-License-Identifier: Apache-2.0
// OpenS3Store: a bucket of Amazon S3, or of any server that speaks its
// protocol, as an ObjectStore. README.md says what servers must do and where
// they differ.
#ifndef DCP_IO_S3_S3_STORE_H_
#define DCP_IO_S3_S3_STORE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/object/object_store.h"
#include "dcp/io/s3/s3_settings.h"

namespace dcp {

// Finds credentials and asks for one key of the bucket, so that what is wrong
// with the clock, the credentials, the region or the name of the bucket is said
// here. With Amazon, the region that the bucket is in replaces the one of
// `settings`. Blocks; each store has connections of its own, so a process
// should have one for each bucket. Not after a fork, see aws_runtime.h.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenS3Store(
    absl::string_view bucket, const S3Settings& settings);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_STORE_H_
