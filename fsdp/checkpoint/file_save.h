// SPDX-License-Identifier: Apache-2.0
// Saves a state dict of all ranks as one file, .pt or safetensors: rank 0
// writes it, and receives what the others hold through windows of bounded size
// while it writes. For the thread that trains; collective, an error on one rank
// is returned on all.
#ifndef FSDP_CHECKPOINT_FILE_SAVE_H_
#define FSDP_CHECKPOINT_FILE_SAVE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/io/file_system.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"

namespace fsdp {

// `state` is what this rank has; `path` is one that NamesStateFile accepts. If
// several ranks have an item or an object, the first rank's counts. Options are
// as in StateFile::Write; `memory_bytes` is rank 0's, half of it for windows.
// Errors are those of Save and StateFile.
absl::Status SaveFile(dcp::FileSystem& fs, const std::string& path,
                      const dcp::SaveState& state,
                      ProcessGroupCoordinator& coordinator,
                      const dcp::SaveOptions& options);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_FILE_SAVE_H_
