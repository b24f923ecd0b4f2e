// SPDX-License-Identifier: Apache-2.0
// FlatGradients: reduced gradients of some of a group's parameters, in one
// tensor, and their sum. Plain values; GroupReduction calls it on the current
// stream.
#ifndef FSDP_ENGINE_FLAT_GRADIENTS_H_
#define FSDP_ENGINE_FLAT_GRADIENTS_H_

#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/fsdp_param.h"

namespace fsdp {

struct FlatGradients {
  std::vector<FsdpParam*> params;  // in the order of the group
  at::Tensor values;               // padded shards, one after the other
};

// The sum for every parameter that either has, in the dtype that both promote
// to. `group` has all parameters, in order. May change the values of `sum`.
FlatGradients Sum(const std::vector<std::unique_ptr<FsdpParam>>& group,
                  FlatGradients sum, const FlatGradients& added);

}  // namespace fsdp

#endif  // FSDP_ENGINE_FLAT_GRADIENTS_H_
