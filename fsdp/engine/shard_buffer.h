// SPDX-License-Identifier: Apache-2.0
// ShardBuffer: this rank's shards of a group's parameters, one after the other
// in one byte tensor. The layout is a gather's (collectives.h), so gathering
// shards as they are needs no copy. Operators recognise views of the buffer by
// the storage. Used by one group; see there for threads.
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
  // Shards that outlive the buffer belong to no group any more.
  ~ShardBuffer();
  ShardBuffer(const ShardBuffer&) = delete;
  ShardBuffer& operator=(const ShardBuffer&) = delete;

  // Allocates a padded shard for each parameter in `params`, with the dtype
  // from `dtypes`, filled with zeros. Shards that were in the buffer before
  // keep their memory, but belong to no group any more.
  void Allocate(FsdpParamGroup* group,
                const std::vector<std::unique_ptr<FsdpParam>>& params,
                std::vector<c10::ScalarType> dtypes, c10::Device device,
                bool pinned);

  // Parameter `i`'s padded shard, flat: a view.
  at::Tensor Padded(size_t i) const;
  c10::ScalarType dtype(size_t i) const { return dtypes_[i]; }

  // The whole buffer, and each shard's offset in it, in bytes.
  const at::Tensor& bytes() const { return bytes_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  at::Tensor bytes_;
  c10::intrusive_ptr<ShardStorage> storage_;  // holds bytes_
  std::vector<int64_t> offsets_;
  std::vector<int64_t> lengths_;  // in bytes, without alignment
  std::vector<c10::ScalarType> dtypes_;
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_SHARD_BUFFER_H_
