// SPDX-License-Identifier: Apache-2.0
// The Python modules for the classes in PyTorch's DCP index (.metadata). Pure.
#ifndef DCP_FORMAT_PICKLE_METADATA_MODULES_H_
#define DCP_FORMAT_PICKLE_METADATA_MODULES_H_

#include "absl/strings/string_view.h"

namespace dcp {

inline constexpr absl::string_view kMetadataModule =
    "torch.distributed.checkpoint.metadata";
// The module for TensorProperties and the enum in PyTorch 2.2 and earlier.
inline constexpr absl::string_view kOldMetadataModule =
    "torch.distributed._shard.sharded_tensor.metadata";
inline constexpr absl::string_view kStorageModule =
    "torch.distributed.checkpoint.filesystem";
inline constexpr absl::string_view kPlannerModule =
    "torch.distributed.checkpoint.planner";
inline constexpr absl::string_view kMegatronModule =
    "megatron.core.dist_checkpointing.strategies.torch";

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_METADATA_MODULES_H_
