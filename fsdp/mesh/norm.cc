// SPDX-License-Identifier: Apache-2.0
// Computes the norm of many tensors with few kernels and reductions.
//
// Tested by tests/fsdp/mesh/dtensor_test.cc.
#include "fsdp/mesh/norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/_foreach_norm.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/mesh_collectives.h"

namespace fsdp {
namespace {

// Terms with parts on the same groups; their sums are reduced together.
struct Bucket {
  std::vector<ProcessGroup> groups;
  std::vector<at::Tensor> tensors;
};

bool Contains(const std::vector<ProcessGroup>& groups,
              const ProcessGroup& group) {
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

std::vector<Bucket> GroupIntoBuckets(const std::vector<NormTerm>& terms) {
  std::vector<Bucket> buckets;
  for (const NormTerm& term : terms) {
    auto bucket = std::find_if(
        buckets.begin(), buckets.end(),
        [&term](const Bucket& b) { return b.groups == term.shard_groups; });
    if (bucket == buckets.end()) {
      bucket = buckets.insert(buckets.end(),
                              {.groups = term.shard_groups, .tensors = {}});
    }
    // An empty tensor has no infinity norm.
    if (term.local.defined() && term.local.numel() > 0) {
      bucket->tensors.push_back(term.local);
    }
  }
  return buckets;
}

// Each tensor's norm, in float64. Tensors with the same device and dtype share
// a kernel.
std::vector<at::Tensor> Norms(const std::vector<at::Tensor>& tensors, double p,
                              c10::Device device) {
  std::map<std::pair<std::string, c10::ScalarType>, std::vector<at::Tensor>>
      kinds;
  for (const at::Tensor& tensor : tensors) {
    kinds[{tensor.device().str(), tensor.scalar_type()}].push_back(tensor);
  }
  std::vector<at::Tensor> norms;
  for (const auto& [kind, alike] : kinds) {
    // 16 bits would overflow at 65504, or keep eight bits of the norm.
    const bool narrow = c10::elementSize(kind.second) < sizeof(float);
    for (const at::Tensor& norm : at::_foreach_norm(
             alike, p,
             narrow ? std::optional(c10::ScalarType::Float) : std::nullopt)) {
      norms.push_back(norm.to(device, at::kDouble));
    }
  }
  return norms;
}

// A bucket's contribution to the reduction: the sum of p-th powers, or the
// maximum.
at::Tensor LocalPart(const Bucket& bucket, double p, c10::Device device) {
  if (bucket.tensors.empty()) {
    return at::zeros({}, at::TensorOptions(at::kDouble).device(device));
  }
  const at::Tensor norms = at::stack(Norms(bucket.tensors, p, device));
  return std::isinf(p) ? norms.max() : norms.pow(p).sum();
}

// Reduces each of `parts`, which have no dimensions, over a group's ranks.
void ReduceParts(const std::vector<at::Tensor*>& parts, bool is_max,
                 const ProcessGroup& group) {
  std::vector<at::Tensor> locals;
  for (const at::Tensor* part : parts) locals.push_back(*part);
  at::Tensor reduced = at::stack(locals);
  if (is_max) {
    // A maximum may ignore NaN, depending on backend and order, so a flag for
    // NaN is reduced together with it.
    at::Tensor both = at::stack({reduced, reduced.isnan().to(at::kDouble)});
    AllReduce(both, ReduceOp::kMax, group);
    reduced = both[0].masked_fill(both[1] > 0,
                                  std::numeric_limits<double>::quiet_NaN());
  } else {
    AllReduce(reduced, ReduceOp::kSum, group);
  }
  const std::vector<at::Tensor> each = reduced.unbind();
  for (size_t i = 0; i < parts.size(); ++i) *parts[i] = each[i];
}

// The sum of all terms' p-th powers, or the maximum, in float64. The host
// decides which parts a group reduces: an index on the device would be copied
// there, and the host would wait for the device at each copy.
at::Tensor TotalPart(const std::vector<NormTerm>& terms, double p) {
  const c10::Device device = terms[0].device;
  const bool is_max = std::isinf(p);
  const std::vector<Bucket> buckets = GroupIntoBuckets(terms);

  std::vector<at::Tensor> parts;
  for (const Bucket& bucket : buckets) {
    parts.push_back(LocalPart(bucket, p, device));
  }
  std::vector<ProcessGroup> reduced;
  for (const Bucket& first : buckets) {
    for (const ProcessGroup& group : first.groups) {
      if (Contains(reduced, group)) continue;
      reduced.push_back(group);
      std::vector<at::Tensor*> shared;
      for (size_t b = 0; b < buckets.size(); ++b) {
        if (Contains(buckets[b].groups, group)) shared.push_back(&parts[b]);
      }
      ReduceParts(shared, is_max, group);
    }
  }
  const at::Tensor all = at::stack(parts);
  return is_max ? all.max() : all.sum();
}

}  // namespace

NormTerm MakeNormTerm(const at::Tensor& local, c10::ScalarType dtype,
                      c10::Device device, const DTensorSpec& spec) {
  NormTerm term{
      .local = local, .dtype = dtype, .device = device, .shard_groups = {}};
  if (!spec.mesh.get_coordinate().has_value()) return term;
  for (size_t axis = 0; axis < spec.placements.size(); ++axis) {
    if (!spec.placements[axis].is_shard()) continue;
    term.shard_groups.push_back(
        spec.mesh.get_group(static_cast<int64_t>(axis)));
  }
  return term;
}

void CheckNormType(double p) {
  TORCH_CHECK_VALUE(p > 0,
                    "the order of a norm must be above 0 or infinity, not ", p);
}

at::Tensor TotalNorm(const std::vector<NormTerm>& terms, double p,
                     const std::optional<DeviceMesh>& pp_mesh) {
  CheckNormType(p);
  if (terms.empty() && !pp_mesh.has_value()) return at::zeros({});
  const at::NoGradGuard no_grad;
  const bool is_max = std::isinf(p);
  at::Tensor total =
      terms.empty()
          ? at::zeros({},
                      at::TensorOptions(at::kDouble).device(pp_mesh->device()))
          : TotalPart(terms, p);
  if (pp_mesh.has_value()) {
    ReduceParts({&total}, is_max, pp_mesh->get_group());
  }
  if (!is_max) total = total.pow(1.0 / p);
  const bool is_double =
      std::any_of(terms.begin(), terms.end(), [](const NormTerm& term) {
        return term.dtype == c10::ScalarType::Double ||
               term.dtype == c10::ScalarType::ComplexDouble;
      });
  return total.to(is_double ? at::kDouble : at::kFloat);
}

}  // namespace fsdp
