// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/clip_grad_norm.h"

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/_foreach_mul.h"
#include "c10/util/Exception.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/norm.h"

namespace fsdp {
namespace {

void CheckFinite(const at::Tensor& norm, double norm_type, bool is_error) {
  if (!is_error) return;
  const double value = norm.item<double>();
  TORCH_CHECK(std::isfinite(value), "the norm of order ", norm_type,
              " of the gradients is ", value,
              ", so they cannot be clipped; to go on and scale them by it, "
              "pass error_if_nonfinite=false");
}

void CheckMaxNorm(double max_norm) {
  TORCH_CHECK_VALUE(max_norm >= 0, "max_norm ", max_norm, " is below 0");
}

// The term for a parameter's gradient. The dtype and device are the
// parameter's, so that a rank without the gradient agrees with the others.
NormTerm GradTerm(const DTensor& parameter) {
  const at::Tensor& local = parameter.to_local();
  return MakeNormTerm(local.grad(), local.scalar_type(), local.device(),
                      parameter.spec());
}

// Scales with one kernel for all gradients that share device and dtype.
void Scale(const std::vector<at::Tensor>& grads, double max_norm,
           const at::Tensor& total_norm) {
  const at::NoGradGuard no_grad;
  // Does not branch on the value, because that would wait for the device.
  const at::Tensor factor = (max_norm / (total_norm + 1e-6)).clamp_max(1.0);
  std::map<std::pair<std::string, c10::ScalarType>, std::vector<at::Tensor>>
      kinds;
  for (const at::Tensor& grad : grads) {
    kinds[{grad.device().str(), grad.scalar_type()}].push_back(grad);
  }
  for (auto& [kind, alike] : kinds) {
    at::_foreach_mul_(alike, factor.to(alike[0].device()));
  }
}

const at::Tensor& LocalTensor(const DTensor& parameter) {
  return parameter.to_local();
}
const at::Tensor& LocalTensor(const at::Tensor& parameter) { return parameter; }

// A parameter that is registered under two names is listed twice, but counts
// once.
template <typename Parameter>
std::vector<Parameter> EachOnce(const std::vector<Parameter>& parameters) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<Parameter> once;
  for (const Parameter& parameter : parameters) {
    if (seen.insert(LocalTensor(parameter).unsafeGetTensorImpl()).second) {
      once.push_back(parameter);
    }
  }
  return once;
}

at::Tensor ClipTerms(const std::vector<NormTerm>& terms, double max_norm,
                     double norm_type, bool error_if_nonfinite,
                     const std::optional<DeviceMesh>& pp_mesh) {
  CheckMaxNorm(max_norm);
  const at::Tensor norm = TotalNorm(terms, norm_type, pp_mesh);
  CheckFinite(norm, norm_type, error_if_nonfinite);
  std::vector<at::Tensor> grads;
  for (const NormTerm& term : terms) {
    if (term.local.defined()) grads.push_back(term.local);
  }
  Scale(grads, max_norm, norm);
  return norm;
}

}  // namespace

at::Tensor get_total_norm(const std::vector<DTensor>& tensors, double norm_type,
                          bool error_if_nonfinite) {
  CheckNormType(norm_type);
  std::vector<NormTerm> terms;
  for (const DTensor& tensor : tensors) {
    Placements placements = tensor.placements();
    for (Placement& p : placements) {
      if (p.is_partial()) p = Replicate();
    }
    const DTensor whole = tensor.redistribute(placements);
    const at::Tensor local = whole.to_local().detach();
    terms.push_back(
        MakeNormTerm(local, local.scalar_type(), local.device(), whole.spec()));
  }
  const at::Tensor norm = TotalNorm(terms, norm_type);
  CheckFinite(norm, norm_type, error_if_nonfinite);
  return norm;
}

at::Tensor clip_grad_norm_(const std::vector<DTensor>& parameters,
                           double max_norm, double norm_type,
                           bool error_if_nonfinite,
                           const std::optional<DeviceMesh>& pp_mesh) {
  std::vector<NormTerm> terms;
  for (const DTensor& parameter : EachOnce(parameters)) {
    terms.push_back(GradTerm(parameter));
  }
  return ClipTerms(terms, max_norm, norm_type, error_if_nonfinite, pp_mesh);
}

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters,
                           double max_norm, double norm_type,
                           bool error_if_nonfinite,
                           const std::optional<DeviceMesh>& pp_mesh) {
  std::vector<NormTerm> terms;
  for (const at::Tensor& parameter : EachOnce(parameters)) {
    const std::optional<DTensor> sharded = dtensor_of(parameter);
    terms.push_back(sharded ? GradTerm(*sharded)
                            : NormTerm{.local = parameter.grad(),
                                       .dtype = parameter.scalar_type(),
                                       .device = parameter.device(),
                                       .shard_groups = {}});
  }
  return ClipTerms(terms, max_norm, norm_type, error_if_nonfinite, pp_mesh);
}

void clip_grads_with_norm_(const std::vector<DTensor>& parameters,
                           double max_norm, const at::Tensor& total_norm) {
  CheckMaxNorm(max_norm);
  std::vector<at::Tensor> grads;
  for (const DTensor& parameter : EachOnce(parameters)) {
    const at::Tensor& grad = parameter.to_local().grad();
    if (grad.defined()) grads.push_back(grad);
  }
  Scale(grads, max_norm, total_norm);
}

}  // namespace fsdp
