// SPDX-License-Identifier: Apache-2.0
// Muon on whole matrices, written as plainly as possible, for tests.
#ifndef TESTS_FSDP_OPTIM_MUON_REFERENCE_H_
#define TESTS_FSDP_OPTIM_MUON_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "fsdp/optim/muon.h"
#include "torch/types.h"

namespace fsdp::testing {

inline torch::Tensor ReferenceOrthogonal(const torch::Tensor& update,
                                         const optim::MuonOptions& options) {
  const auto [a, b, c] = options.ns_coefficients();
  torch::Tensor x = update.to(torch::kBFloat16, /*non_blocking=*/false,
                              /*copy=*/true);
  const bool turned = x.size(0) > x.size(1);
  if (turned) x = x.t();
  x = x / torch::linalg_vector_norm(x, 2).clamp_min(options.eps());
  for (int64_t i = 0; i < options.ns_steps(); ++i) {
    const torch::Tensor gram = torch::mm(x, x.t());
    x = torch::addmm(x, torch::addmm(gram, gram, gram, b, c), x, a);
  }
  return turned ? x.t() : x;
}

// Steps one matrix; `momentum` is its buffer.
inline void ReferenceStep(torch::Tensor parameter, torch::Tensor momentum,
                          const torch::Tensor& grad,
                          const optim::MuonOptions& options) {
  const torch::NoGradGuard no_grad;
  momentum.lerp_(grad, 1 - options.momentum());
  const torch::Tensor update =
      options.nesterov() ? grad.lerp(momentum, options.momentum()) : momentum;
  const auto rows = static_cast<double>(parameter.size(0));
  const auto columns = static_cast<double>(parameter.size(1));
  const std::string rule = options.adjust_lr_fn().value_or("original");
  double factor = std::sqrt(rows / columns);
  if (rule == "original") factor = std::sqrt(std::max(1.0, rows / columns));
  if (rule == "match_rms_adamw") {
    factor = 0.2 * std::sqrt(std::max(rows, columns));
  }
  parameter.mul_(1 - options.lr() * options.weight_decay());
  parameter.add_(ReferenceOrthogonal(update, options), -options.lr() * factor);
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_OPTIM_MUON_REFERENCE_H_
