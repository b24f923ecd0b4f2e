// SPDX-License-Identifier: Apache-2.0
// Switches fully_shard's reductions off and on again within a batch.
//
// Tested by tests/fsdp/parallel/pipeline/pipeline_fsdp_test.cc.
#include "fsdp/parallel/pipeline/microbatch_sync.h"

#include "fsdp/engine/fsdp_state.h"

namespace fsdp {

MicrobatchSync::MicrobatchSync(const torch::nn::Module& module) {
  for (FSDPModule& handle : fsdp_modules(module)) {
    if (handle.is_root()) handle.set_is_last_backward(false);
    if (handle.state()->groups().empty()) continue;
    for (const auto& group : handle.state()->groups()) {
      before_.emplace_back(group.get(), group->settings());
    }
    handle.set_requires_gradient_sync(false, /*recurse=*/false);
    handle.set_reshard_after_backward(false, /*recurse=*/false);
    modules_.push_back(handle);
  }
}

MicrobatchSync::~MicrobatchSync() { BeforeLastBackward(); }

void MicrobatchSync::BeforeLastBackward() {
  for (const auto& [group, before] : before_) {
    GroupSettings& settings = group->settings();
    settings.requires_gradient_sync = before.requires_gradient_sync;
    settings.requires_all_reduce = before.requires_all_reduce;
    settings.reshard_after_backward = before.reshard_after_backward;
    group->scheduler().set_is_last_backward(true);
  }
  before_.clear();
  modules_.clear();
}

}  // namespace fsdp
