// SPDX-License-Identifier: Apache-2.0
// DCP_SHARDING_INFO: the offsets in the whole tensors at which the parts in one
// safetensors file begin, as DCP's Hugging Face writer keeps them in the
// header. Pure; any thread.
#ifndef DCP_FORMAT_SAFETENSORS_SHARDING_INFO_H_
#define DCP_FORMAT_SAFETENSORS_SHARDING_INFO_H_

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/tensor/box.h"

namespace dcp {

// The key for this information in __metadata__.
inline constexpr absl::string_view kShardingInfoKey = "DCP_SHARDING_INFO";

// By tensor name.
using SavedOffsets = absl::flat_hash_map<std::string, Dims>;

// DataLoss for malformed JSON, a tensor without offsets, and one that occurs
// twice. Whether the offsets fit the tensors is for the caller to check.
absl::StatusOr<SavedOffsets> ParseShardingInfo(absl::string_view json);

}  // namespace dcp

#endif  // DCP_FORMAT_SAFETENSORS_SHARDING_INFO_H_
