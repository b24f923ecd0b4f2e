// SPDX-License-Identifier: Apache-2.0
// The lazy key's boxed fallback, which handles every operator that takes a
// tensor with the key. See [Note: the lazy key] in lazy_key.h. The dispatcher
// calls it, on any thread.
#ifndef FSDP_ENGINE_LAZY_LAZY_FALLBACK_H_
#define FSDP_ENGINE_LAZY_LAZY_FALLBACK_H_

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/stack.h"
#include "c10/core/DispatchKeySet.h"

namespace fsdp {

// Gathers the parameters among the arguments of `op`, which are on top of the
// stack, and runs the operator below the key. Throws c10::Error for operators
// that the engine refuses, and passes on errors from the operator. Registered
// for the key by lazy_fallback.cc.
void LazyFallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

// Called for every operator that reaches the fallback, before the engine looks
// at the arguments, which are on top of the stack. Returns whether it has run
// the operator and put the results in their place.
using OperatorHook = bool (*)(const c10::OperatorHandle& op,
                              torch::jit::Stack* stack);
// Null, the default, disables the hook. Any thread.
void SetOperatorHook(OperatorHook hook);

}  // namespace fsdp

#endif  // FSDP_ENGINE_LAZY_LAZY_FALLBACK_H_
