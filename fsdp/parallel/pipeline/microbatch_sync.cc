// SPDX-License-Identifier: Apache-2.0
// Switches fully_shard's reductions off and on again within a batch.
//
// Tested by tests/fsdp/parallel/pipeline/pipeline_fsdp_test.cc.
#include "fsdp/parallel/pipeline/microbatch_sync.h"

#include <cstddef>

#include "fsdp/engine/fsdp_state.h"

namespace fsdp {

MicrobatchSync::MicrobatchSync(const torch::nn::Module& module) {
  for (FSDPModule& handle : fsdp_modules(module)) {
    if (handle.is_root()) handle.set_is_last_backward(false);
    if (handle.state()->group() == nullptr) continue;
    before_.push_back(handle.state()->group()->settings());
    handle.set_requires_gradient_sync(false, /*recurse=*/false);
    handle.set_reshard_after_backward(false, /*recurse=*/false);
    modules_.push_back(handle);
  }
}

MicrobatchSync::~MicrobatchSync() { BeforeLastBackward(); }

void MicrobatchSync::BeforeLastBackward() {
  for (size_t i = 0; i < modules_.size(); ++i) {
    GroupSettings& settings = modules_[i].state()->group()->settings();
    settings.requires_gradient_sync = before_[i].requires_gradient_sync;
    settings.requires_all_reduce = before_[i].requires_all_reduce;
    settings.reshard_after_backward = before_[i].reshard_after_backward;
    modules_[i].state()->scheduler().set_is_last_backward(true);
  }
  modules_.clear();
}

}  // namespace fsdp
