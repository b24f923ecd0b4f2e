// SPDX-License-Identifier: Apache-2.0
// Directories with unsupported layouts, recognised by the names in them. Any
// thread.
#ifndef DCP_CHECKPOINT_DIALECTS_PARTS_FOREIGN_DIRECTORY_H_
#define DCP_CHECKPOINT_DIALECTS_PARTS_FOREIGN_DIRECTORY_H_

#include "absl/status/status.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"

namespace dcp {

// Unimplemented, with the program and advice, for an Orbax (MaxText, Flax),
// T5X, TensorFlow, nanotron or fairscale checkpoint.
absl::Status CheckForeignDirectory(const SourceDirectory& directory);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_PARTS_FOREIGN_DIRECTORY_H_
