// SPDX-License-Identifier: Apache-2.0
// Gives storages memory, and refuses pointers into empty ones.
// Tested by tests/fsdp/reaching_parameters_test.cc.
#include "fsdp/engine/managed_storage.h"

#include <cstdint>
#include <typeinfo>
#include <utility>

#include "c10/core/Allocator.h"
#include "fsdp/engine/lazy_key.h"

namespace fsdp {
namespace {

// The flag that makes StorageImpl throw its extra meta's error for a pointer. A
// member function can switch it on, but not off. Access is not checked for
// arguments of an explicit instantiation ([temp.spec]).
template <bool c10::StorageImpl::*kFlag>
struct PointerFlag {
  friend bool& RefusePointersFlag(c10::StorageImpl& storage) {
    return storage.*kFlag;
  }
};
bool& RefusePointersFlag(c10::StorageImpl& storage);
template struct PointerFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

}  // namespace

ManagedStorage::ManagedStorage(FsdpParam* owner, c10::Device device,
                               size_t num_bytes, Holds holds)
    : c10::StorageImpl(use_byte_size_t(), static_cast<int64_t>(num_bytes),
                       at::DataPtr(nullptr, device),
                       c10::GetAllocator(device.type()), /*resizable=*/true),
      owner_(owner),
      holds_(holds) {
  get_extra_meta().custom_data_ptr_error_msg_ =
      holds == Holds::kParameter
          ? "fsdp: a raw pointer into a parameter of fully_shard, which is "
            "sharded at the moment and has no memory. Gather it first: use it "
            "in a forward, or call fsdp::get_fsdp_module(module).unshard(); "
            "this rank's shard is in module->named_parameters()"
          : "fsdp: a raw pointer into the gradient of a layer's member, which "
            "has no memory: gradients are on the shards, in "
            "module->named_parameters()";
  Free();
}

bool ManagedStorage::Allocate() {
  RefusePointers(false);
  const bool is_new = !has_hidden();
  set_data_ptr_noswap(is_new ? allocator()->allocate(nbytes())
                             : std::move(hidden_));
  return is_new;
}

void ManagedStorage::Borrow(const at::Tensor& keep_alive) {
  RefusePointers(false);
  auto* context = new at::Tensor(keep_alive);
  set_data_ptr_noswap(at::DataPtr(
      context->data_ptr(), context,
      [](void* owned) { delete static_cast<at::Tensor*>(owned); },
      keep_alive.device()));
}

void ManagedStorage::Free() {
  RefusePointers(true);
  set_data_ptr_noswap(at::DataPtr(nullptr, device()));
  hidden_ = at::DataPtr();
}

void ManagedStorage::Hide() {
  RefusePointers(true);
  hidden_ = set_data_ptr(at::DataPtr(nullptr, device()));
}

ManagedStorage* FindManagedStorage(const at::Tensor& tensor) {
  if (!HasLazyKey(tensor) || !tensor.has_storage()) return nullptr;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  return typeid(*storage) == typeid(ManagedStorage)
             ? static_cast<ManagedStorage*>(storage)
             : nullptr;
}

// The following call to set_data_ptr_noswap puts the flag into effect.
void ManagedStorage::RefusePointers(bool refuse) {
  RefusePointersFlag(*this) = refuse;
}

ShardStorage::ShardStorage(FsdpParamGroup* group, at::DataPtr memory,
                           size_t num_bytes, bool in_container)
    : c10::StorageImpl(use_byte_size_t(), static_cast<int64_t>(num_bytes),
                       std::move(memory), /*allocator=*/nullptr,
                       /*resizable=*/false),
      group_(group),
      in_container_(in_container) {}

ShardStorage* FindShardStorage(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  return typeid(*storage) == typeid(ShardStorage)
             ? static_cast<ShardStorage*>(storage)
             : nullptr;
}

}  // namespace fsdp
