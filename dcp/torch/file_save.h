// A state dict of all ranks as one file, .pt or safetensors: rank 0 writes it,
// and gets what the others hold through windows of bounded size, while it
// writes. For the thread that trains; collective, an error is one of all ranks.
#ifndef DCP_TORCH_FILE_SAVE_H_
#define DCP_TORCH_FILE_SAVE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "dcp/checkpoint/save.h"
#include "dcp/io/file_system.h"
#include "dcp/torch/process_group_coordinator.h"

namespace dcp {

// `state` is what this rank has; `path` as NamesStateFile. Of what several
// ranks have, that of the first counts, objects too. Of the options as
// StateFile::Write; `memory_bytes` is rank 0's, half of it for windows. Errors
// as Save, and those of StateFile.
absl::Status SaveFile(FileSystem& fs, const std::string& path,
                      const SaveState& state,
                      ProcessGroupCoordinator& coordinator,
                      const SaveOptions& options);

}  // namespace dcp

#endif  // DCP_TORCH_FILE_SAVE_H_
