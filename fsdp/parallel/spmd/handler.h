// SPDX-License-Identifier: Apache-2.0
// The handler: what happens to an operator that takes an activation in parts or
// a parameter with a style. The engine's lazy key calls it first (see
// SetOperatorHook in fsdp/engine/lazy/lazy_fallback.h) from the first
// parallelize_module or shard on; before that, programs pay nothing.
#ifndef FSDP_PARALLEL_SPMD_HANDLER_H_
#define FSDP_PARALLEL_SPMD_HANDLER_H_

#include <cstdint>
#include <map>
#include <string>

namespace fsdp::spmd {

// Has the lazy key ask the handler from now on. Any thread; idempotent.
void InstallHandler();

// How often an operator without a rule for what it was given gathered its
// arguments, by the operator's name; since the start of the process, or the
// last call with `reset`. Any thread.
std::map<std::string, int64_t> gathered_operators(bool reset = false);

// While it lives, an operator that would gather its arguments throws c10::Error
// with its name and their layouts, on this thread.
class StrictLayouts {
 public:
  StrictLayouts();
  ~StrictLayouts();
  StrictLayouts(const StrictLayouts&) = delete;
  StrictLayouts& operator=(const StrictLayouts&) = delete;
};

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_HANDLER_H_
