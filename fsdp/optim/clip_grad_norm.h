// SPDX-License-Identifier: Apache-2.0
// clip_grad_norm_ for sharded parameters: the norm covers the whole gradients
// and is the same on every rank, whatever the mesh. Replaces
// torch::nn::utils::clip_grad_norm_, which sees only one rank's shards. For the
// thread that trains, after backward, without autograd. Collective: every rank
// passes the same parameters in the same order; it makes one all-reduce for
// each mesh axis that cuts a parameter, with one number for each axis
// combination. A parameter without a gradient, on one rank or on all, counts as
// zero; one that is listed twice, because it has two names, counts once.
#ifndef FSDP_OPTIM_CLIP_GRAD_NORM_H_
#define FSDP_OPTIM_CLIP_GRAD_NORM_H_

#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"

namespace fsdp {

// The p-norm (p > 0, or infinity) of `tensors` as one vector: a tensor without
// dimensions, float32 unless an input is float64. Axes that replicate count
// once; Partial tensors are reduced first. With `error_if_nonfinite` throws
// c10::Error on every rank when the norm is infinite or NaN.
at::Tensor get_total_norm(const std::vector<DTensor>& tensors,
                          double norm_type = 2.0,
                          bool error_if_nonfinite = false);

// Multiplies the gradients by max_norm / (norm + 1e-6) if that is below 1;
// returns the norm before. With `pp_mesh`, a mesh with one axis (as
// TorchTitan's argument), `parameters` belong to this rank's pipeline stage,
// and the norm covers all stages. That costs one more all-reduce over that
// axis; every stage calls it, even without parameters.
at::Tensor clip_grad_norm_(
    const std::vector<DTensor>& parameters, double max_norm,
    double norm_type = 2.0, bool error_if_nonfinite = false,
    const std::optional<DeviceMesh>& pp_mesh = std::nullopt);
// For parameters from module->parameters(): shards count as their DTensors;
// plain tensors, equal on every rank, as they are.
at::Tensor clip_grad_norm_(
    const std::vector<at::Tensor>& parameters, double max_norm,
    double norm_type = 2.0, bool error_if_nonfinite = false,
    const std::optional<DeviceMesh>& pp_mesh = std::nullopt);

// The second half of clip_grad_norm_, for a norm from elsewhere.
void clip_grads_with_norm_(const std::vector<DTensor>& parameters,
                           double max_norm, const at::Tensor& total_norm);

}  // namespace fsdp

#endif  // FSDP_OPTIM_CLIP_GRAD_NORM_H_
