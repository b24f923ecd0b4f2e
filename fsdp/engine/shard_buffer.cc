// SPDX-License-Identifier: Apache-2.0
// Allocates a group's shards in one storage.
// Tested by tests/fsdp/fully_shard_test.cc.
#include "fsdp/engine/shard_buffer.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/zeros.h"
#include "fsdp/engine/comm/collectives.h"

namespace fsdp {

ShardBuffer::~ShardBuffer() {
  if (storage_) storage_->Orphan();
}

void ShardBuffer::Allocate(
    FsdpParamGroup* group,
    const std::vector<std::unique_ptr<FsdpParam>>& params,
    std::vector<c10::ScalarType> dtypes, c10::Device device, bool pinned) {
  dtypes_ = std::move(dtypes);
  offsets_.clear();
  lengths_.clear();
  int64_t num_bytes = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    offsets_.push_back(num_bytes);
    lengths_.push_back(params[i]->geometry().padded_numel() *
                       static_cast<int64_t>(c10::elementSize(dtypes_[i])));
    num_bytes += AlignUp(lengths_.back());
  }
  bytes_ = at::zeros(
      {num_bytes},
      at::TensorOptions(at::kByte).device(device).pinned_memory(pinned));
  if (storage_) storage_->Orphan();
  const c10::Storage memory = bytes_.storage();
  storage_ = c10::make_intrusive<ShardStorage>(
      group, memory.set_data_ptr(at::DataPtr(nullptr, device)),
      static_cast<size_t>(num_bytes),
      std::any_of(params.begin(), params.end(),
                  [](const auto& param) { return param->in_container(); }));
  bytes_.unsafeGetTensorImpl()->set_storage_keep_dtype(
      c10::Storage(c10::intrusive_ptr<c10::StorageImpl>(storage_)));
}

at::Tensor ShardBuffer::Padded(size_t i) const {
  return bytes_.narrow(0, offsets_[i], lengths_[i]).view(dtypes_[i]);
}

}  // namespace fsdp
