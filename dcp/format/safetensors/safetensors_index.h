// SPDX-License-Identifier: Apache-2.0
// A sharded model's index, model.safetensors.index.json, which says in which
// file each tensor is. Pure; any thread.
#ifndef DCP_FORMAT_SAFETENSORS_SAFETENSORS_INDEX_H_
#define DCP_FORMAT_SAFETENSORS_SAFETENSORS_INDEX_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"

namespace dcp {

// Tensor name -> file name. File names are checked to stay inside the
// directory. DataLoss for a malformed index; Unimplemented for an index of
// published weight differences.
absl::StatusOr<absl::flat_hash_map<std::string, std::string>>
ParseSafetensorsIndex(ByteSpan json);

// Keys have the given order and are indented by two spaces, as Hugging Face
// does.
std::string WriteSafetensorsIndex(
    uint64_t total_size,
    absl::Span<const std::pair<std::string, std::string>> weight_map);

}  // namespace dcp

#endif  // DCP_FORMAT_SAFETENSORS_SAFETENSORS_INDEX_H_
