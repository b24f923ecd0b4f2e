// SPDX-License-Identifier: Apache-2.0
// How a rank in RunRanks begins in the engine's tests.
#ifndef TESTS_FSDP_START_RANK_H_
#define TESTS_FSDP_START_RANK_H_

#include "ATen/Parallel.h"
#include "fsdp/mesh/process_group.h"
#include "torch/types.h"
#include "torch/utils.h"

namespace fsdp::testing {

// One thread, and the process group.
inline void StartRank(const InitProcessGroupOptions& options = {}) {
  at::set_num_threads(1);
  init_process_group(options);
}

// The same, with float64 as the default dtype, so that rounding hides nothing.
inline void StartRankInDouble() {
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  StartRank();
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_START_RANK_H_
