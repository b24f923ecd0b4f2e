// SPDX-License-Identifier: Apache-2.0
// A step, for each mesh:
//   1. Every rank moves the momentum of the shards, and copies the parts of the
//      updates, as bfloat16, for the ranks that own the matrices.
//   2. One all-to-all takes them there.
//   3. Every rank joins and orthogonalizes matrices, one after the other.
//   4. A second all-to-all returns the parts, which every rank adds to the
//      shards.
// A matrix of which no other rank has a part is finished in the first point.
//
// Tested by tests/fsdp/optim/muon_test.cc.
#include "fsdp/optim/muon_step.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros_like.h"
#include "absl/strings/str_cat.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "dcp/tensor/box.h"
#include "fsdp/engine/lazy/shard_use.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/collective_order.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/optim/matrix_plan.h"
#include "fsdp/optim/muon_checks.h"
#include "fsdp/optim/newton_schulz.h"

namespace fsdp {
namespace {

using optim::MuonOptions;
using optim::MuonParamState;

// The dtype in which matrices travel, and are orthogonalized.
constexpr at::ScalarType kWireType = at::kBFloat16;

// A parameter with a gradient, and the options of the group.
struct MuonTarget {
  at::Tensor parameter;
  const MuonOptions* options;
};

// The part of a matrix's own memory that `piece` is.
at::Tensor PieceInMatrix(const at::Tensor& matrix, const dcp::Box& whole,
                         const dcp::Box& piece) {
  const size_t row = whole.sizes.size() - 2;
  return matrix
      .narrow(0, piece.offsets[row] - whole.offsets[row], piece.sizes[row])
      .narrow(1, piece.offsets[row + 1], piece.sizes[row + 1]);
}

// The elements from `offset` in a buffer, as a matrix with the piece's sizes.
at::Tensor PieceInBuffer(const at::Tensor& buffer, int64_t offset,
                         const dcp::Box& piece) {
  const size_t row = piece.sizes.size() - 2;
  return buffer.narrow(0, offset, dcp::Volume(piece.sizes))
      .view({piece.sizes[row], piece.sizes[row + 1]});
}

at::Tensor NewBuffer(const std::vector<int64_t>& elements, c10::Device device) {
  int64_t total = 0;
  for (const int64_t number : elements) total += number;
  return at::empty({total}, at::TensorOptions(kWireType).device(device));
}

NewtonSchulz Rule(const MuonOptions& options) {
  return {.coefficients = options.ns_coefficients(),
          .eps = options.eps(),
          .num_steps = options.ns_steps()};
}

// The learning rate for a matrix with this box.
double AdjustedLr(const MuonOptions& options, const dcp::Box& box) {
  const size_t row = box.sizes.size() - 2;
  const auto rows = static_cast<double>(box.sizes[row]);
  const auto columns = static_cast<double>(box.sizes[row + 1]);
  const std::string rule = options.adjust_lr_fn().value_or("original");
  if (rule == "match_rms_adamw") {
    return options.lr() * (0.2 * std::sqrt(std::max(rows, columns)));
  }
  const double ratio = rows / columns;
  const bool is_clamped = rule == "original";
  return options.lr() * std::sqrt(is_clamped ? std::max(1.0, ratio) : ratio);
}

// Updates the parameter's momentum with the gradient, and returns the values to
// orthogonalize.
at::Tensor MoveMomentum(const at::Tensor& parameter, const MuonOptions& options,
                        OptimizerStates& states) {
  auto& slot = states[parameter.unsafeGetTensorImpl()];
  if (!slot) slot = std::make_unique<MuonParamState>();
  auto& state = static_cast<MuonParamState&>(*slot);
  const at::Tensor& grad = parameter.grad();
  if (!state.momentum_buffer().defined()) {
    state.momentum_buffer(at::zeros_like(grad, at::MemoryFormat::Preserve));
  }
  at::Tensor& buffer = state.momentum_buffer();
  buffer.lerp_(grad, 1 - options.momentum());
  return options.nesterov() ? grad.lerp(buffer, options.momentum()) : buffer;
}

// One mesh's part of a step.
class MeshStep {
 public:
  MeshStep(const MeshMatrices& matrices, const std::vector<MuonTarget>& targets,
           OptimizerStates& states)
      : matrices_(matrices),
        plan_(matrices.plan),
        targets_(targets),
        states_(states) {}

  void Run() {
    const bool exchanges = plan_.num_exchanged > 0;
    if (exchanges) {
      const DeviceMesh& mesh = *matrices_.mesh;
      CheckInStep(
          matrices_.group, mesh.device_type(),
          absl::StrCat("exchange of ", plan_.num_exchanged, " matrices of ",
                       matrices_.parameters.size(), " parameters"),
          "a step of Muon");
      sent_ = NewBuffer(plan_.sent, mesh.device());
    }
    for (size_t i = 0; i < matrices_.parameters.size(); ++i) StepLocally(i);
    if (!exchanges) return;
    at::Tensor received =
        AllToAllRows(sent_, plan_.sent, plan_.received, matrices_.group);
    sent_.reset();
    at::Tensor answers = Answers(received);
    received.reset();
    const at::Tensor updates =
        AllToAllRows(answers, plan_.answered, plan_.updates, matrices_.group);
    answers.reset();
    for (size_t i = 0; i < matrices_.parameters.size(); ++i) {
      for (const size_t p : matrices_.pieces[i]) {
        const MatrixPiece& piece = plan_.held[p];
        Add(i, piece.box, plan_.matrices[piece.matrix],
            PieceInBuffer(updates, piece.answer_offset, piece.box));
      }
    }
  }

 private:
  const MuonTarget& Target(size_t index) const {
    return targets_[matrices_.parameters[index]];
  }

  // Moves momentum, decays the weights, finishes the matrices that only this
  // rank has, and copies the parts of others to `sent_`.
  void StepLocally(size_t index) {
    const auto& [parameter, options] = Target(index);
    const at::Tensor moved = MoveMomentum(parameter, *options, states_);
    at::Tensor(parameter).mul_(1 - options->lr() * options->weight_decay());
    for (const size_t m : matrices_.finished[index]) {
      const PlannedMatrix& matrix = plan_.matrices[m];
      const at::Tensor part = matrices_.LocalPart(index, moved, matrix.box);
      Add(index, matrix.box, matrix,
          Orthogonalize(WireCopy(part), Rule(*options)));
    }
    for (const size_t p : matrices_.pieces[index]) {
      const MatrixPiece& piece = plan_.held[p];
      if (piece.offset == -1) continue;
      PieceInBuffer(sent_, piece.offset, piece.box)
          .copy_(matrices_.LocalPart(index, moved, piece.box));
    }
  }

  // A new contiguous tensor on the device that computes.
  at::Tensor WireCopy(const at::Tensor& part) const {
    const c10::Device device =
        matrices_.mesh.has_value() ? matrices_.mesh->device() : part.device();
    return at::empty(part.sizes(), at::TensorOptions(kWireType).device(device))
        .copy_(part);
  }

  // Orthogonalizes this rank's matrices, one after the other; returns the parts
  // for all ranks that hold them.
  at::Tensor Answers(const at::Tensor& received) const {
    at::Tensor answers = NewBuffer(plan_.answered, received.device());
    std::vector<std::vector<const MatrixPiece*>> by_matrix(
        plan_.matrices.size());
    for (const MatrixPiece& piece : plan_.owned) {
      by_matrix[piece.matrix].push_back(&piece);
    }
    for (size_t m = 0; m < by_matrix.size(); ++m) {
      if (by_matrix[m].empty()) continue;
      const PlannedMatrix& planned = plan_.matrices[m];
      const size_t row = planned.box.sizes.size() - 2;
      at::Tensor matrix =
          at::empty({planned.box.sizes[row], planned.box.sizes[row + 1]},
                    received.options());
      for (const MatrixPiece* piece : by_matrix[m]) {
        if (piece->offset == -1) continue;
        PieceInMatrix(matrix, planned.box, piece->box)
            .copy_(PieceInBuffer(received, piece->offset, piece->box));
      }
      matrix = Orthogonalize(std::move(matrix),
                             Rule(*Target(planned.parameter).options));
      for (const MatrixPiece* piece : by_matrix[m]) {
        PieceInBuffer(answers, piece->answer_offset, piece->box)
            .copy_(PieceInMatrix(matrix, planned.box, piece->box));
      }
    }
    return answers;
  }

  // Moves the part `box` of a shard by `update`.
  void Add(size_t index, const dcp::Box& box, const PlannedMatrix& matrix,
           const at::Tensor& update) const {
    const auto& [parameter, options] = Target(index);
    matrices_.LocalPart(index, parameter, box)
        .add_(update.to(parameter.device()), -AdjustedLr(*options, matrix.box));
  }

  const MeshMatrices& matrices_;
  const MatrixPlan& plan_;
  const std::vector<MuonTarget>& targets_;
  OptimizerStates& states_;
  at::Tensor sent_;
};

}  // namespace

void MuonStep::Run(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                   OptimizerStates& states) {
  std::vector<MuonTarget> targets;
  std::vector<SteppedParameter> parameters;
  for (const torch::optim::OptimizerParamGroup& group : groups) {
    const MuonOptions* options = FindMuonOptions(group);
    if (options == nullptr) continue;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      const std::optional<DTensor> sharded = dtensor_of(parameter);
      std::vector<int64_t> shape = WholeShape(parameter);
      const int64_t rows = options->rows_per_matrix() == 0
                               ? shape[shape.size() - 2]
                               : options->rows_per_matrix();
      targets.push_back({parameter, options});
      parameters.push_back({.tensor = parameter.unsafeGetTensorImpl(),
                            .shape = std::move(shape),
                            .spec = {},
                            .rows_per_matrix = rows});
      if (sharded.has_value()) parameters.back().spec = sharded->spec();
    }
  }
  if (parameters != parameters_) {
    meshes_ = MakeMeshMatrices(parameters);
    parameters_ = std::move(parameters);
  }
  for (const MuonTarget& target : targets) NoteShardWrite(target.parameter);
  // From here on every operator means the shards.
  const c10::impl::ExcludeDispatchKeyGuard by_shard(kLazyKey);
  for (const MeshMatrices& matrices : meshes_) {
    MeshStep(matrices, targets, states).Run();
  }
}

}  // namespace fsdp
