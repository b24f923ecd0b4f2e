// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/torch_archive.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

absl::StatusOr<uint64_t> TorchArchive::PayloadOffset(
    const TorchTensor& tensor) const {
  const auto it = storages.find(tensor.storage_key);
  if (it == storages.end()) {
    return absl::DataLossError(
        absl::StrCat("storage ", tensor.storage_key, " is missing"));
  }
  const Storage& storage = it->second;
  const std::optional<uint64_t> skip =
      CheckedMul(tensor.storage_offset, ElementSize(tensor.dtype));
  if (tensor.storage_bytes > storage.size || !skip.has_value() ||
      *skip > storage.size) {
    return absl::DataLossError(
        absl::StrCat("storage ", tensor.storage_key, " has ", storage.size,
                     " bytes, but the tensor needs ", tensor.storage_bytes));
  }
  return storage.payload_offset + *skip;
}

}  // namespace dcp
