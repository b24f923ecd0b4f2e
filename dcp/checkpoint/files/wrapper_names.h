// SPDX-License-Identifier: Apache-2.0
// The names that wrappers around modules leave in a state dict: those from
// FSDP1, activation checkpointing, torch.compile and DistributedDataParallel.
// Pure; any thread. Source: torch/distributed/fsdp/_common_utils.py
// (FSDP_PREFIX),
// torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py,
// torch/_dynamo/eval_frame.py (OptimizedModule).
#ifndef DCP_CHECKPOINT_FILES_WRAPPER_NAMES_H_
#define DCP_CHECKPOINT_FILES_WRAPPER_NAMES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

// The parameter's name without the components _fsdp_wrapped_module,
// _checkpoint_wrapped_module and _orig_mod at any place, and without "module"
// at the front. The last component always stays.
std::string WithoutWrappers(absl::string_view name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_WRAPPER_NAMES_H_
