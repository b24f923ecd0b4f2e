// SPDX-License-Identifier: Apache-2.0
// The handles that the sources share: errors, bytes, stops, checkpoints,
// and the file system. Internal; see tessera.h for threads and ownership.
#ifndef CAPI_HANDLES_H_
#define CAPI_HANDLES_H_

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "capi/tessera.h"
#include "dcp/base/error_place.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

struct tessera_error {
  absl::Status status;
  std::string message;
  dcp::ErrorPlace place;
};

struct tessera_bytes {
  std::string value;
};

struct tessera_stop {
  std::stop_source source;
};

struct tessera_checkpoint {
  std::unique_ptr<dcp::Checkpoint> opened;
};

namespace dcp::capi {

// Null for OK.
tessera_error* MakeError(const absl::Status& status);

tessera_bytes* MakeBytes(std::string value);

// A token that is never requested for null.
std::stop_token StopToken(const tessera_stop* stop);

// InvalidArgument for a null or unknown name.
absl::StatusOr<DType> ParseDType(const char* name);

// InvalidArgument for sizes that are negative, too many or too large.
absl::StatusOr<Dims> ParseSizes(size_t num_dims, const int64_t* sizes);

DirectMode ToDirectMode(const tessera_write_options& options);

// The process's file system, which any thread may use.
FileSystem& ProcessFileSystem();

}  // namespace dcp::capi

#endif  // CAPI_HANDLES_H_
