// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/save/save_plan_cache.h"

#include <algorithm>
#include <utility>

namespace dcp {

bool SavePlanCache::Holds(const SaveState& state, int64_t rank,
                          int64_t num_ranks) const {
  return state.status.ok() && !plan_id_.empty() && rank == rank_ &&
         num_ranks == num_ranks_ &&
         std::equal(state.tensors.begin(), state.tensors.end(),
                    tensors_.begin(), tensors_.end(),
                    [](const SaveTensor& a, const Tensor& b) {
                      return a.fqn == b.fqn && a.path == b.path &&
                             a.dtype == b.dtype && a.shape == b.shape &&
                             a.box == b.box;
                    }) &&
         std::equal(state.objects.begin(), state.objects.end(),
                    objects_.begin(), objects_.end(),
                    [](const SaveObject& a, const Object& b) {
                      return a.fqn == b.fqn && a.path == b.path;
                    });
}

void SavePlanCache::Store(const SaveState& state, int64_t rank,
                          int64_t num_ranks, std::string plan_id,
                          std::vector<size_t> items) {
  rank_ = rank;
  num_ranks_ = num_ranks;
  tensors_.clear();
  for (const SaveTensor& tensor : state.tensors) {
    tensors_.push_back(
        {tensor.fqn, tensor.path, tensor.dtype, tensor.shape, tensor.box});
  }
  objects_.clear();
  for (const SaveObject& object : state.objects) {
    objects_.push_back({object.fqn, object.path});
  }
  plan_id_ = std::move(plan_id);
  items_ = std::move(items);
}

}  // namespace dcp
