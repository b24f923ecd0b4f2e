// SPDX-License-Identifier: Apache-2.0
// ShardBuffer: the shards that this rank has of a group's parameters, one after
// the other in one tensor of bytes, in the layout of a gather (collectives.h),
// so that a group whose shards are gathered as they are needs no copy.
// Operators recognise views of it by its storage. Used by one group; see there
// for threads.
#ifndef FSDP_ENGINE_SHARD_BUFFER_H_
#define FSDP_ENGINE_SHARD_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/managed_storage.h"

namespace fsdp {

class ShardBuffer {
 public:
  ShardBuffer() = default;
  // Shards that outlive it belong to no group any more.
  ~ShardBuffer();
  ShardBuffer(const ShardBuffer&) = delete;
  ShardBuffer& operator=(const ShardBuffer&) = delete;

  // Allocates the padded shard of each of `params`, as a tensor of its dtype in
  // `dtypes`, filled with zeros. The shards that it held before keep their
  // memory, but belong to no group any more.
  void Allocate(FsdpParamGroup* group,
                const std::vector<std::unique_ptr<FsdpParam>>& params,
                std::vector<c10::ScalarType> dtypes, c10::Device device,
                bool pinned);

  // The padded shard of parameter `i`, flat: a view.
  at::Tensor Padded(size_t i) const;
  c10::ScalarType dtype(size_t i) const { return dtypes_[i]; }

  // The whole, and where each shard begins in it, in bytes.
  const at::Tensor& bytes() const { return bytes_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  at::Tensor bytes_;
  c10::intrusive_ptr<ShardStorage> storage_;  // of bytes_
  std::vector<int64_t> offsets_;
  std::vector<int64_t> lengths_;  // in bytes, without alignment
  std::vector<c10::ScalarType> dtypes_;
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_SHARD_BUFFER_H_
