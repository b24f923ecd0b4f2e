// SPDX-License-Identifier: Apache-2.0
// The norm of many tensors together, where some have parts on other ranks;
// shared by DTensor::norm and clip_grad_norm_. For the thread that trains.
#ifndef FSDP_MESH_NORM_H_
#define FSDP_MESH_NORM_H_

#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor_spec.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

// One tensor's part on this rank.
struct NormTerm {
  at::Tensor local;  // undefined: counts as zero
  // The dtype of `local`, or of the gradient that it would have: it must be the
  // same on all ranks, including those without a gradient.
  c10::ScalarType dtype;
  c10::Device device;
  // The groups for the axes that cut the tensor; only there do parts add up.
  std::vector<ProcessGroup> shard_groups;
};

// The term for `local`, a tensor placed like `spec`, which has no Partial.
NormTerm MakeNormTerm(const at::Tensor& local, c10::ScalarType dtype,
                      c10::Device device, const DTensorSpec& spec);

// Throws c10::ValueError unless p > 0; infinity is allowed.
void CheckNormType(double p);

// The p-norm of all terms as one vector: a tensor without dimensions, equal on
// every rank, on the first term's device; float64 if a term is, else float32.
// Powers are summed in float64, so that they neither overflow nor lose small
// terms. Collective over the shard groups: one all-reduce for each, in the
// order of the first terms, so terms must come in the same order on every rank.
//
// With `pp_mesh`, which has one axis, the norm covers the terms of all pipeline
// stages, which hold different tensors. This takes one more all-reduce over
// that axis, in which a stage without terms takes part too.
at::Tensor TotalNorm(const std::vector<NormTerm>& terms, double p,
                     const std::optional<DeviceMesh>& pp_mesh = std::nullopt);

}  // namespace fsdp

#endif  // FSDP_MESH_NORM_H_
