// SPDX-License-Identifier: Apache-2.0
// The index of torch_checkpointing, metadata.pkl. Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_PARTS_ITEMS_INDEX_H_
#define DCP_CHECKPOINT_DIALECTS_PARTS_ITEMS_INDEX_H_

#include <stop_token>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"

namespace dcp {

// Whether metadata.pkl is the index of torch_checkpointing, so that weights
// next to it may be the ranks' parts.
absl::StatusOr<bool> HasItemsIndex(const SourceDirectory& directory,
                                   const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_PARTS_ITEMS_INDEX_H_
