// SPDX-License-Identifier: Apache-2.0
// Sets the key on tensors and on the current thread.
// Tested by tests/fsdp/reaching_parameters_test.cc.
#include "fsdp/engine/lazy_key.h"

#include "c10/core/TensorImpl.h"

namespace fsdp {
namespace {

thread_local int meta_depth = 0;
thread_local int forward_depth = 0;
thread_local int shard_depth = 0;

// TensorImpl's key set is protected.
struct KeySetAccess : c10::TensorImpl {
  static c10::DispatchKeySet& Of(const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->*(&KeySetAccess::key_set_);
  }
};

}  // namespace

void AddLazyKey(const at::Tensor& tensor) {
  c10::DispatchKeySet& keys = KeySetAccess::Of(tensor);
  keys = keys.add(kLazyKey);
}

bool HasLazyKey(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->key_set().has(kLazyKey);
}

EngineScope::EngineScope() : exclude_(kLazyKey) {}

MetaDeviceGuard::MetaDeviceGuard() : include_(kLazyKey) { ++meta_depth; }
MetaDeviceGuard::~MetaDeviceGuard() { --meta_depth; }
bool MetaDeviceGuard::active() { return meta_depth > 0; }

ForwardScope::ForwardScope() { ++forward_depth; }
ForwardScope::~ForwardScope() { --forward_depth; }
bool ForwardScope::active() { return forward_depth > 0; }

ShardScope::ShardScope() { ++shard_depth; }
ShardScope::~ShardScope() { --shard_depth; }
bool ShardScope::active() { return shard_depth > 0; }

}  // namespace fsdp
