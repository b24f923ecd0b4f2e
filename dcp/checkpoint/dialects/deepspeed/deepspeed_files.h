// SPDX-License-Identifier: Apache-2.0
// DeepSpeedFiles: the files in a DeepSpeed checkpoint, by their names. Looks at
// names and the pointer file `latest`, not into the checkpoint. Any thread.
// Source: deepspeed/runtime/engine.py, checkpoint/constants.py (0.19.8).
#ifndef DCP_CHECKPOINT_DIALECTS_DEEPSPEED_DEEPSPEED_FILES_H_
#define DCP_CHECKPOINT_DIALECTS_DEEPSPEED_DEEPSPEED_FILES_H_

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"

namespace dcp {

struct DeepSpeedFiles {
  std::string directory;  // the tag's, where the files are
  // the file that named it; empty: it was given
  std::string pointer;
  std::vector<std::string> models;  // *_model_states.pt, by rank; at least one
  std::vector<std::string> optims;  // *_optim_states.pt, by rank
  // The other model-parallel ranks' files, which a universal checkpoint may
  // have.
  std::vector<std::string> parallel_models;
  // The files below a universal checkpoint's folder zero/, such as
  // "zero/layers.0.w/fp32.pt"; by name.
  std::vector<std::string> universal;
  bool is_stage3 = false;  // the models' names have a rank
};

// The checkpoint in `directory`, which has these entries, or the one below it
// that `latest` or `latest_universal` names; nullopt if there is none.
// Unimplemented for tensor, pipeline and expert parallelism, with advice, and
// for tensors that are elsewhere; FailedPrecondition if accelerate saved
// several models there; DataLoss when the pointer leads out of the directory.
absl::StatusOr<std::optional<DeepSpeedFiles>> FindDeepSpeed(
    const SourceDirectory& directory, const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_DEEPSPEED_FILES_H_
