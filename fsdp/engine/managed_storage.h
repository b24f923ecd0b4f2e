// SPDX-License-Identifier: Apache-2.0
// The storages that the engine gives to tensors, so that it recognises an
// operator's arguments: ManagedStorage for gathered parameters, and
// ShardStorage for shards. Both hold only a pointer to their owner, which they
// pass on. Any thread may read; the engine writes.
#ifndef FSDP_ENGINE_MANAGED_STORAGE_H_
#define FSDP_ENGINE_MANAGED_STORAGE_H_

#include <atomic>
#include <cstddef>

#include "ATen/core/Tensor.h"
#include "c10/core/StorageImpl.h"

namespace fsdp {

class FsdpParam;
class FsdpParamGroup;

// The storage of a gathered parameter: empty while it is sharded. It is always
// the same object, so a tensor that autograd saved is whole again when the
// parameter is gathered again. Any thread may read; the engine writes.
class ManagedStorage final : public c10::StorageImpl {
 public:
  // kGradient: the storage of the member's grad() while the gradient is on the
  // shard. It never has memory, and reading it is an error.
  enum class Holds { kParameter, kGradient };

  // The storage has no memory yet; it will have `num_bytes` on `device`. It
  // reports that size all the time, so that views can be made while it is
  // empty; raw pointers into it are refused until there is memory.
  ManagedStorage(FsdpParam* owner, c10::Device device, size_t num_bytes,
                 Holds holds = Holds::kParameter);

  Holds holds() const { return holds_; }

  // Null once the module is gone.
  FsdpParam* owner() const { return owner_.load(std::memory_order_acquire); }
  void Orphan() { owner_.store(nullptr, std::memory_order_release); }

  // Allocates new memory, or takes back what Hide has kept, without a change of
  // autograd's version counters. Returns whether it is new.
  bool Allocate();
  // Uses memory that `keep_alive` owns, without a copy. The sizes are equal.
  void Borrow(const at::Tensor& keep_alive);
  void Free();
  // Makes it empty, as Free does, but keeps the memory for the next Allocate.
  void Hide();
  bool has_hidden() const { return hidden_.get() != nullptr; }

 private:
  // true: while the storage holds no memory, a request for a raw pointer throws
  // an error that says how to gather.
  void RefusePointers(bool refuse);

  // Release and acquire: a thread that sees null sees the module's last writes.
  std::atomic<FsdpParam*> owner_;
  const Holds holds_;
  at::DataPtr hidden_;
};

// Null when the storage of `tensor` is not managed.
ManagedStorage* FindManagedStorage(const at::Tensor& tensor);

// The storage that holds a group's shards. It also identifies views of a shard.
class ShardStorage final : public c10::StorageImpl {
 public:
  // Takes over `memory`, `num_bytes` long. `in_container`: a ParameterList or
  // ParameterDict holds one of the shards, so forward reads it there.
  ShardStorage(FsdpParamGroup* group, at::DataPtr memory, size_t num_bytes,
               bool in_container);

  // Null once the module is gone or its shards have moved elsewhere.
  FsdpParamGroup* group() const {
    return group_.load(std::memory_order_acquire);
  }
  void Orphan() { group_.store(nullptr, std::memory_order_release); }
  bool in_container() const { return in_container_; }

 private:
  std::atomic<FsdpParamGroup*> group_;  // ordered as owner_ above
  const bool in_container_;
};

// Null when `tensor` is not in a ShardStorage.
ShardStorage* FindShardStorage(const at::Tensor& tensor);

}  // namespace fsdp

#endif  // FSDP_ENGINE_MANAGED_STORAGE_H_
