// SPDX-License-Identifier: Apache-2.0
// MicrobatchSync: while a pipeline trains one batch in microbatches, the
// fully_shard groups in a stage's module keep gradients unreduced and
// parameters gathered in every backward but the last, which reduces the sums
// once. For the thread that trains.
#ifndef FSDP_PARALLEL_PIPELINE_MICROBATCH_SYNC_H_
#define FSDP_PARALLEL_PIPELINE_MICROBATCH_SYNC_H_

#include <utility>
#include <vector>

#include "fsdp/engine/group_data.h"
#include "fsdp/fsdp_module.h"
#include "torch/nn/module.h"

namespace fsdp {

class FsdpParamGroup;

class MicrobatchSync {
 public:
  // Begins the batch. Does nothing for a module without fully_shard.
  explicit MicrobatchSync(const torch::nn::Module& module);
  // Ends the batch, if BeforeLastBackward was not called because of an error.
  ~MicrobatchSync();
  MicrobatchSync(const MicrobatchSync&) = delete;
  MicrobatchSync& operator=(const MicrobatchSync&) = delete;

  // Gives every group the settings from before the batch: groups that reduced
  // before it reduce in the next backward.
  void BeforeLastBackward();

 private:
  // The handles of all fully_shard calls in the module, and each group's
  // earlier settings; a handle keeps the groups alive.
  std::vector<FSDPModule> modules_;
  std::vector<std::pair<FsdpParamGroup*, GroupSettings>> before_;
};

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_MICROBATCH_SYNC_H_
