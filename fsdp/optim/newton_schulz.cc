// SPDX-License-Identifier: Apache-2.0
// The order of operations and the layouts are torch.optim.Muon's, so that the
// results are equal bit for bit.
//
// Tested by tests/fsdp/optim/muon_test.cc.
#include "fsdp/optim/newton_schulz.h"

#include "ATen/ops/addmm.h"
#include "ATen/ops/linalg_vector_norm.h"
#include "ATen/ops/matmul.h"

namespace fsdp {

at::Tensor Orthogonalize(at::Tensor matrix, const NewtonSchulz& rule) {
  const auto [a, b, c] = rule.coefficients;
  // The product of the short side with itself is the small one.
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = is_tall ? matrix.t() : matrix;
  x.div_(at::linalg_vector_norm(x, 2).clamp_min(rule.eps));
  for (int64_t step = 0; step < rule.num_steps; ++step) {
    const at::Tensor gram = at::matmul(x, x.t());
    const at::Tensor update = at::addmm(gram, gram, gram, b, c);
    x = at::addmm(x, update, x, a);
  }
  return is_tall ? x.t() : x;
}

}  // namespace fsdp
