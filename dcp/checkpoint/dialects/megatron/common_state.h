// SPDX-License-Identifier: Apache-2.0
// Megatron-core's state that is the same on all ranks: arguments, counters and
// the optimizer's groups, in common.pt or in a separate item. Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_MEGATRON_COMMON_STATE_H_
#define DCP_CHECKPOINT_DIALECTS_MEGATRON_COMMON_STATE_H_

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// Reads the torch.save archive at `item` in the files of `parts`: a dict, or a
// list with one. Returns the leaves as entries named common.*; the values are
// in the arena of `parts`. The pickle's CRC-32 is always checked, because
// nothing reads it again.
absl::StatusOr<std::vector<CheckpointEntry>> ReadCommonState(
    FileSystem& fs, const StorageInfo& item, const std::stop_token& stop,
    CheckpointParts& parts);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_MEGATRON_COMMON_STATE_H_
