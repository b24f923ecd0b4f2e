// SPDX-License-Identifier: Apache-2.0
// Saves a state dict from all ranks as one file, .pt or safetensors. Rank 0
// writes it, and meanwhile receives the others' parts through windows of
// bounded size. For the thread that trains; collective, an error on one rank is
// returned on all.
#ifndef FSDP_CHECKPOINT_FILE_SAVE_H_
#define FSDP_CHECKPOINT_FILE_SAVE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/io/file_system.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"

namespace fsdp {

// `state` is this rank's part; NamesStateFile must accept `path`. If several
// ranks have an item or an object, the first rank's counts. Options are as in
// StateFile::Write; `memory_bytes` is rank 0's, half of it for windows. Errors
// are those of Save and StateFile.
absl::Status SaveFile(dcp::FileSystem& fs, const std::string& path,
                      const dcp::SaveState& state,
                      ProcessGroupCoordinator& coordinator,
                      const dcp::SaveOptions& options);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_FILE_SAVE_H_
