// SPDX-License-Identifier: Apache-2.0
// The handler for operators that take an activation in parts or a parameter
// with a style. The engine's lazy key calls it first (see SetOperatorHook in
// fsdp/engine/lazy/lazy_fallback.h) from the first parallelize_module or shard
// on; before that, programs pay nothing.
#ifndef FSDP_PARALLEL_SPMD_HANDLER_H_
#define FSDP_PARALLEL_SPMD_HANDLER_H_

#include <cstdint>
#include <map>
#include <string>

namespace fsdp::spmd {

// Makes the lazy key ask the handler from now on. Any thread; idempotent.
void InstallHandler();

// How often an operator gathered the arguments because no rule fitted them, by
// the operator's name; since the process started, or since the last call with
// `reset`. Any thread.
std::map<std::string, int64_t> gathered_operators(bool reset = false);

// While it lives, on this thread, an operator that would gather arguments
// throws c10::Error with the operator's name and the layouts.
class StrictLayouts {
 public:
  StrictLayouts();
  ~StrictLayouts();
  StrictLayouts(const StrictLayouts&) = delete;
  StrictLayouts& operator=(const StrictLayouts&) = delete;
};

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_HANDLER_H_
