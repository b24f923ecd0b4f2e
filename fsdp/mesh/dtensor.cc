// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/dtensor.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <sstream>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/tensor.h"
#include "c10/core/ScalarType.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/mesh/norm.h"
#include "fsdp/mesh/redistribute.h"

namespace fsdp {
namespace {

// Moves `tensor` to the mesh's device type; a meta tensor stays on meta.
at::Tensor MoveToMeshDevice(const at::Tensor& tensor, const DeviceMesh& mesh) {
  if (tensor.is_meta() || tensor.device().type() == mesh.device_type()) {
    return tensor;
  }
  return tensor.to(mesh.device());
}

struct ShapeAndStride {
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;
};

// The whole tensor's shape and stride, if every shard is as long as this one.
ShapeAndStride InferEvenWhole(const at::Tensor& local, const DeviceMesh& mesh,
                              const Placements& placements) {
  ShapeAndStride whole{.shape = local.sizes().vec(),
                       .stride = local.strides().vec()};
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    const Placement& p = placements[axis];
    if (!p.is_shard()) continue;
    whole.shape[p.dim()] *= mesh.size(axis);
    for (int64_t d = 0; d < local.dim(); ++d) {
      if (d == p.dim() || whole.stride[d] < whole.stride[p.dim()]) continue;
      whole.stride[d] *= mesh.size(axis);
    }
  }
  return whole;
}

// For each number, the largest on any rank in the mesh.
at::Tensor MaxOverMesh(const std::vector<int64_t>& numbers,
                       const DeviceMesh& mesh, c10::Device device) {
  at::Tensor result = at::tensor(numbers, at::kLong).to(device);
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    AllReduce(result, ReduceOp::kMax, mesh.get_group(axis));
  }
  return result.cpu();
}

// Whether all ranks have the same numbers, and equally many.
bool AllAgree(const std::vector<int64_t>& numbers, const DeviceMesh& mesh,
              c10::Device device) {
  std::vector<int64_t> both = numbers;
  for (const int64_t number : numbers) both.push_back(-number);
  const at::Tensor largest = MaxOverMesh(both, mesh, device);
  const std::vector<at::Tensor> halves = largest.chunk(2);
  return numbers.empty() || halves[0].equal(-halves[1]);
}

// Fails on every rank when the ranks do not describe the same tensor.
void CheckRanksAgree(const at::Tensor& local, const DTensorSpec& spec) {
  const c10::Device device = local.device();
  const bool fits = local.sizes() == spec.local_shape();
  const bool all_fit =
      MaxOverMesh({fits ? 0 : 1}, spec.mesh, device).item<int64_t>() == 0;
  TORCH_CHECK_VALUE(
      all_fit, "from_local: this rank's tensor of shape ", local.sizes(),
      fits ? " fits" : " does not fit", " a tensor of shape ",
      at::IntArrayRef(spec.shape), " placed ", to_string(spec.placements),
      fits ? ", but that of another rank does not" : "",
      "; give shape and stride of the whole when shards are uneven");
  TORCH_CHECK_VALUE(
      AllAgree({static_cast<int64_t>(spec.shape.size()),
                static_cast<int64_t>(local.scalar_type())},
               spec.mesh, device),
      "from_local: the ranks differ in dtype or number of dimensions; this "
      "one has ",
      local.scalar_type(), " and ", spec.shape.size());
  std::vector<int64_t> geometry = spec.shape;
  geometry.insert(geometry.end(), spec.stride.begin(), spec.stride.end());
  TORCH_CHECK_VALUE(AllAgree(geometry, spec.mesh, device),
                    "from_local: the ranks differ in the shape of the whole; "
                    "this one has ",
                    at::IntArrayRef(spec.shape));
}

}  // namespace

DTensor::DTensor(at::Tensor local, DTensorSpec spec)
    : local_(std::move(local)), spec_(std::move(spec)) {
  TORCH_CHECK_VALUE(local_.defined(), "DTensor: the local tensor is undefined");
  TORCH_CHECK_VALUE(spec_.shape.size() == spec_.stride.size(),
                    "DTensor: the shape has ", spec_.shape.size(),
                    " dimensions, but there are ", spec_.stride.size(),
                    " strides");
  const std::vector<int64_t> expected = spec_.local_shape();
  TORCH_CHECK_VALUE(
      local_.sizes() == expected, "DTensor: the local tensor has shape ",
      local_.sizes(), ", but this rank's part of a tensor of shape ",
      at::IntArrayRef(spec_.shape), " placed ", to_string(spec_.placements),
      " on ", to_string(spec_.mesh), " has ", at::IntArrayRef(expected));
}

DTensor DTensor::from_local(const at::Tensor& local, const DeviceMesh& mesh,
                            const Placements& placements, bool run_check,
                            std::optional<std::vector<int64_t>> shape,
                            std::optional<std::vector<int64_t>> stride) {
  TORCH_CHECK_VALUE(shape.has_value() == stride.has_value(),
                    "from_local: give shape and stride of the whole, or "
                    "neither");
  const int64_t ndim =
      shape ? static_cast<int64_t>(shape->size()) : local.dim();
  DTensorSpec spec{.mesh = mesh,
                   .placements = Normalized(placements, mesh, ndim),
                   .shape = {},
                   .stride = {}};
  if (shape.has_value()) {
    spec.shape = *std::move(shape);
    spec.stride = *std::move(stride);
  } else {
    ShapeAndStride whole = InferEvenWhole(local, mesh, spec.placements);
    spec.shape = std::move(whole.shape);
    spec.stride = std::move(whole.stride);
  }
  if (!mesh.get_coordinate().has_value()) {
    return DTensor(local.new_empty({0}), std::move(spec));
  }
  at::Tensor part = MoveToMeshDevice(local, mesh);
  if (!run_check || part.is_meta()) return DTensor(part, std::move(spec));

  CheckRanksAgree(part, spec);
  const at::NoGradGuard no_grad;
  part = part.contiguous();
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (!spec.placements[axis].is_replicate()) continue;
    Broadcast(part.detach(), 0, mesh.get_group(axis));
  }
  return DTensor(part, std::move(spec));
}

at::Tensor DTensor::full_tensor() const {
  return redistribute(Placements(spec_.placements.size(), Replicate()))
      .to_local();
}

DTensor DTensor::redistribute(const Placements& placements) const {
  DTensorSpec spec = spec_;
  spec.placements = Normalized(placements, spec_.mesh, dim());
  at::Tensor local = Redistribute(local_, spec_, spec.placements);
  return DTensor(std::move(local), std::move(spec));
}

int64_t DTensor::numel() const {
  return std::accumulate(spec_.shape.begin(), spec_.shape.end(), int64_t{1},
                         std::multiplies<int64_t>());
}

std::optional<DTensor> DTensor::grad() const {
  const at::Tensor& gradient = local_.grad();
  if (!gradient.defined()) return std::nullopt;
  // Each rank that contributed to a sum gets the sum's gradient.
  DTensorSpec spec = spec_;
  spec.placements = WithoutPartials(spec_.placements);
  return DTensor(gradient, std::move(spec));
}

at::Tensor DTensor::norm(double p) const {
  CheckNormType(p);
  const Placements reduced = WithoutPartials(spec_.placements);
  if (reduced != spec_.placements) return redistribute(reduced).norm(p);
  return TotalNorm(
      {MakeNormTerm(local_, local_.scalar_type(), local_.device(), spec_)}, p);
}

DTensor DTensor::with_local(at::Tensor local) const {
  return DTensor(std::move(local), spec_);
}

DTensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh,
                          const Placements& placements,
                          std::optional<int64_t> src_data_rank) {
  TORCH_CHECK(tensor.is_leaf(),
              "distribute_tensor: the tensor is not a leaf of autograd; "
              "detach it first");
  DTensorSpec spec{.mesh = mesh,
                   .placements = Normalized(
                       placements.empty() ? Placements(mesh.ndim(), Replicate())
                                          : placements,
                       mesh, tensor.dim()),
                   .shape = tensor.sizes().vec(),
                   .stride = tensor.strides().vec()};
  for (const Placement& p : spec.placements) {
    TORCH_CHECK(!p.is_partial(), "distribute_tensor: ", to_string(placements),
                ": a tensor is cut or copied, not made Partial");
  }
  const std::optional<std::vector<int64_t>> coordinate = mesh.get_coordinate();
  if (!coordinate.has_value()) {
    return DTensor(tensor.detach().new_empty({0}), std::move(spec));
  }
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    const int64_t src = src_data_rank.value_or(0);
    TORCH_CHECK_VALUE(src >= 0 && src < mesh.size(axis),
                      "distribute_tensor: src_data_rank ", src,
                      " is out of range for axis ", axis, " of ",
                      mesh.size(axis), " ranks");
  }

  const bool communicate = src_data_rank.has_value() && !tensor.is_meta();
  at::Tensor local = MoveToMeshDevice(tensor.detach(), mesh);
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    const Placement& p = spec.placements[axis];
    const int64_t index = (*coordinate)[axis];
    const ProcessGroup group = mesh.get_group(axis);
    if (p.is_shard()) {
      const AxisCut cut = MakeAxisCut(local.size(p.dim()), p, mesh.size(axis));
      local = communicate ? Scatter(PackBlocks(local, p.dim(), cut),
                                    *src_data_rank, group)
                                .narrow(0, 0, cut.lengths[index])
                                .movedim(0, p.dim())
                                .contiguous()
                          : TakePieces(local, p.dim(), cut, index);
    } else if (communicate) {
      local = local.clone(at::MemoryFormat::Contiguous);
      Broadcast(local, *src_data_rank, group);
    }
  }
  return DTensor(local.requires_grad_(tensor.requires_grad()), std::move(spec));
}

std::string to_string(const DTensor& tensor) {
  std::ostringstream text;
  text << tensor;
  return text.str();
}

std::ostream& operator<<(std::ostream& os, const DTensor& tensor) {
  const at::Tensor& local = tensor.to_local();
  return os << "DTensor(local_tensor=" << local.sizes() << ' '
            << c10::getDtypeNames(local.scalar_type()).first << ' '
            << local.device()
            << ", device_mesh=" << to_string(tensor.device_mesh())
            << ", placements=" << to_string(tensor.placements()) << ')';
}

}  // namespace fsdp
