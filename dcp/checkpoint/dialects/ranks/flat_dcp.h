// SPDX-License-Identifier: Apache-2.0
// FSDP1's flat parameters in a DCP directory: the LOCAL_STATE_DICT, saved by
// torch.distributed.checkpoint. Used by one thread.
#ifndef DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_DCP_H_
#define DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_DCP_H_

#include <stop_token>

#include "absl/status/status.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Replaces each flat parameter in the entries of `parts`, and the optimizer's
// state for it, by the parameters that DialectOptions::layout names; their
// items are located for that. Without a layout, the entries stay unchanged, and
// a loss says so. Another loss is added if the optimizer's state comes from one
// rank only.
absl::Status ResolveFlatParameters(FileSystem& fs, const OpenOptions& options,
                                   const std::stop_token& stop,
                                   CheckpointParts& parts);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_DCP_H_
