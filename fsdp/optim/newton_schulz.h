// SPDX-License-Identifier: Apache-2.0
// Orthogonalize: the nearest orthogonal matrix, roughly, by Newton-Schulz
// iterations in bfloat16, as torch.optim.Muon computes it. Pure; on the
// matrix's device, without waiting for it.
#ifndef FSDP_OPTIM_NEWTON_SCHULZ_H_
#define FSDP_OPTIM_NEWTON_SCHULZ_H_

#include <cstdint>
#include <tuple>

#include "ATen/core/Tensor.h"

namespace fsdp {

struct NewtonSchulz {
  // x becomes a x + b (x x') x + c (x x')^2 x.
  std::tuple<double, double, double> coefficients;
  // The smallest norm by which the matrix is divided.
  double eps;
  int64_t num_steps;
};

// `matrix` is bfloat16 with two dimensions, and is overwritten.
at::Tensor Orthogonalize(at::Tensor matrix, const NewtonSchulz& rule);

}  // namespace fsdp

#endif  // FSDP_OPTIM_NEWTON_SCHULZ_H_
