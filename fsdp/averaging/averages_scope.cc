// SPDX-License-Identifier: Apache-2.0
// Tested by tests/fsdp/averaging/averaged_model_test.cc.
#include "fsdp/averaging/averages_scope.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/lazy/shard_use.h"
#include "fsdp/engine/lazy_key.h"

namespace fsdp::optim {
namespace {

using Kind = std::pair<std::string, at::ScalarType>;

Kind KindFor(const at::Tensor& tensor) {
  return {tensor.device().str(), tensor.scalar_type()};
}

}  // namespace

AveragesScope::AveragesScope(AveragedModel& average,
                             const torch::nn::Module& model)
    : average_(average) {
  TORCH_CHECK(!average.is_swapped_,
              "AveragesScope: another scope has put these averages into the "
              "model; end it first");
  const std::vector<at::Tensor> tensors = average.MatchingTensors(model);
  // The exchange at the end must not run out of memory.
  std::map<Kind, int64_t> sizes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!average.averages_[i].is_first) continue;
    pairs_.push_back({.model = tensors[i],
                      .average = average.averages_[i].tensor,
                      .room = {}});
    int64_t& size = sizes[KindFor(pairs_.back().average)];
    size = std::max(size, pairs_.back().average.numel());
  }
  std::map<Kind, at::Tensor> rooms;
  for (Pair& pair : pairs_) {
    const Kind kind = KindFor(pair.average);
    at::Tensor& room = rooms[kind];
    if (!room.defined()) {
      room = at::empty({sizes[kind]}, pair.average.options());
    }
    pair.room =
        room.narrow(0, 0, pair.average.numel()).view(pair.average.sizes());
  }
  Exchange();
  average_.is_swapped_ = true;
}

AveragesScope::~AveragesScope() {
  Exchange();
  average_.is_swapped_ = false;
}

void AveragesScope::Exchange() {
  for (const Pair& pair : pairs_) NoteShardWrite(pair.model);
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard by_shard(kLazyKey);
  for (Pair& pair : pairs_) {
    const at::Tensor part = pair.model.detach();
    pair.room.copy_(part);
    part.copy_(pair.average);
    pair.average.copy_(pair.room);
  }
}

}  // namespace fsdp::optim
