// SPDX-License-Identifier: Apache-2.0
// Adds gradients of different sets of parameters.
// Tested by tests/fsdp/module/module_zoo_test.cc.
#include "fsdp/engine/flat_gradients.h"

#include <cstdint>
#include <unordered_set>
#include <utility>

#include "ATen/ops/cat.h"
#include "c10/core/ScalarType.h"

namespace fsdp {

FlatGradients Sum(const std::vector<std::unique_ptr<FsdpParam>>& group,
                  FlatGradients sum, const FlatGradients& added) {
  sum.values = sum.values.to(
      c10::promoteTypes(sum.values.scalar_type(), added.values.scalar_type()));
  if (sum.params == added.params) {
    sum.values.add_(added.values);
    return sum;
  }
  const std::unordered_set<const FsdpParam*> in_added(added.params.begin(),
                                                      added.params.end());
  const std::unordered_set<const FsdpParam*> in_sum(sum.params.begin(),
                                                    sum.params.end());
  FlatGradients all;
  std::vector<at::Tensor> parts;
  int64_t added_offset = 0;
  int64_t sum_offset = 0;
  for (const auto& param : group) {
    const int64_t width = param->geometry().padded_numel();
    at::Tensor part;
    if (in_sum.count(param.get()) != 0) {
      part = sum.values.narrow(0, sum_offset, width);
      sum_offset += width;
    }
    if (in_added.count(param.get()) != 0) {
      const at::Tensor other = added.values.narrow(0, added_offset, width);
      part = part.defined() ? part.add_(other) : other;
      added_offset += width;
    }
    if (!part.defined()) continue;
    all.params.push_back(param.get());
    parts.push_back(part);
  }
  all.values = at::cat(parts);
  return all;
}

}  // namespace fsdp
