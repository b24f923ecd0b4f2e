// SPDX-License-Identifier: Apache-2.0
// DeepSpeedState: the pickles in a DeepSpeed checkpoint, and the model that
// they describe: the parameters in the order in which ZeRO laid them out. Used
// by one thread. Source: deepspeed/runtime/engine.py (_get_zero_param_shapes),
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

// One file and the value to use in it.
struct DeepSpeedPickle {
  uint32_t file = 0;
  std::string name;  // the file's, for messages
  const TorchArchive* archive = nullptr;
  Value root;
};

struct DeepSpeedParameter {
  std::string name;
  Dims shape;
  int64_t numel = 0;
};

// A file below a universal checkpoint's folder zero/.
struct UniversalFile {
  std::string parameter;
  std::string key;  // "fp32", "exp_avg", "step", ...
  DeepSpeedPickle pickle;
};

struct DeepSpeedState {
  std::vector<DeepSpeedPickle> models;  // by rank; the root is the whole dict
  // The other model-parallel ranks' pickles in a universal checkpoint.
  std::vector<DeepSpeedPickle> parallel_models;
  std::vector<DeepSpeedPickle> optims;  // by rank; the root is
                                        // optimizer_state_dict
  // A universal checkpoint has these instead of `optims`; the optimizer's root
  // is None if it is not there.
  std::vector<UniversalFile> universal;
  DeepSpeedPickle universal_optimizer;
  int stage = 0;  // ZeRO's
  // The optimizer's groups; for stage 3, the sub-groups. Includes the
  // parameters that other model-parallel ranks have.
  std::vector<std::vector<DeepSpeedParameter>> groups;
  std::vector<DeepSpeedParameter> frozen;
};

// Parses the files in `state`, which were read as torch.save files, and fills
// in the other fields. DataLoss when files contradict each other,
// Unimplemented, with advice, for unsupported features. DeepSpeed before
// 0.4 stored no parameter names: such files give no groups if `names_optional`.
absl::Status ParseDeepSpeed(bool names_optional, DeepSpeedState& state);

// The value for `key` in a dict; DataLoss if there is none.
absl::StatusOr<Value> GetKey(const Value& dict, absl::string_view key);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_DEEPSPEED_STATE_H_
