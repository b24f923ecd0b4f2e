// SPDX-License-Identifier: Apache-2.0
// DeepSpeedState: the pickles of a DeepSpeed checkpoint, and what they say of
// the model: its parameters in the order in which ZeRO laid them out. Used by
// one thread. Source: deepspeed/runtime/engine.py (_get_zero_param_shapes),
// runtime/zero/stage_1_and_2.py, runtime/zero/stage3.py.
#ifndef DCP_CHECKPOINT_DIALECTS_DEEPSPEED_DEEPSPEED_STATE_H_
#define DCP_CHECKPOINT_DIALECTS_DEEPSPEED_DEEPSPEED_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"

namespace dcp {

// One file and the value in it that matters.
struct DeepSpeedPickle {
  uint32_t file = 0;
  std::string name;  // of the file, for messages
  const TorchArchive* archive = nullptr;
  Value root;
};

struct DeepSpeedParameter {
  std::string name;
  Dims shape;
  int64_t numel = 0;
};

// A file below the folder zero/ of a universal checkpoint.
struct UniversalFile {
  std::string parameter;
  std::string key;  // "fp32", "exp_avg", "step", ...
  DeepSpeedPickle pickle;
};

struct DeepSpeedState {
  std::vector<DeepSpeedPickle> models;  // by rank; the root is the whole dict
  // Those of the other model-parallel ranks of a universal checkpoint.
  std::vector<DeepSpeedPickle> parallel_models;
  std::vector<DeepSpeedPickle> optims;  // by rank; the root is
                                        // optimizer_state_dict
  // A universal checkpoint has these instead of `optims`; the optimizer's root
  // is None if it is not there.
  std::vector<UniversalFile> universal;
  DeepSpeedPickle universal_optimizer;
  int stage = 0;  // of ZeRO
  // The groups of the optimizer; for stage 3, its sub-groups. With the
  // parameters that other model-parallel ranks have.
  std::vector<std::vector<DeepSpeedParameter>> groups;
  std::vector<DeepSpeedParameter> frozen;
};

// Adds to `state`, whose files were read as torch.save files, what they say.
// DataLoss when they contradict each other, Unimplemented for what is not
// supported, with what to do instead. Without names of parameters (DeepSpeed
// before 0.4), there are no groups if `names_optional`.
absl::Status ParseDeepSpeed(bool names_optional, DeepSpeedState& state);

// The value of `key` in a dict; DataLoss if there is none.
absl::StatusOr<Value> GetKey(const Value& dict, absl::string_view key);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_DEEPSPEED_STATE_H_
