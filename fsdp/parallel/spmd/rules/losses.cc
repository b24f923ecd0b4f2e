// SPDX-License-Identifier: Apache-2.0
// Losses. Their sums and means are ordinary tensors, equal on every rank.
//
// Tested by tests/fsdp/parallel/spmd/rules/layers_test.cc.

#include <limits>
#include <utility>
#include <vector>

#include "ATen/core/Reduction.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/full.h"
#include "ATen/ops/mean.h"
#include "ATen/ops/nll_loss_nd.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/sum.h"
#include "ATen/ops/zeros_like.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/rules/rules.h"

namespace fsdp::spmd {
namespace {

// A loss over classes: logits or log-probabilities [N, C, ..], or [C], against
// class indices [N, ..].
struct ClassLoss {
  Operand x;
  Operand target;
  at::Tensor class_weights;  // [C], or undefined
  bool of_logits = true;
  int64_t reduction = at::Reduction::Mean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;

  int64_t class_dim() const { return x.ndim() == 1 ? 0 : 1; }
};

// Each target's loss and weight in the mean; zeros where the target is ignored.
struct Losses {
  at::Tensor each;
  at::Tensor weights;
};

at::Tensor TargetWeights(const ClassLoss& loss, const at::Tensor& target,
                         const at::Tensor& ignored, at::ScalarType dtype) {
  if (!loss.class_weights.defined()) return ignored.logical_not().to(dtype);
  return loss.class_weights.to(dtype)
      .index_select(0, target.masked_fill(ignored, 0).flatten())
      .view_as(target)
      .masked_fill(ignored, 0);
}

at::ScalarType SumType(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// On the device, where reading a value would wait, the check is left out.
void CheckTargets(const at::Tensor& target, const at::Tensor& ignored,
                  int64_t num_classes) {
  if (!target.is_cpu()) return;
  const at::Tensor wrong = target.lt(0)
                               .logical_or_(target.ge(num_classes))
                               .logical_and_(ignored.logical_not());
  TORCH_CHECK_INDEX(!wrong.any().item<bool>(), "a target is not one of the ",
                    num_classes, " classes");
}

// No rank has all classes for a row: the largest logit is reduced, and then the
// sums over the classes, together. Backward communicates nothing.
Losses CutClassLosses(const Call& call, const ClassLoss& loss) {
  const int64_t dim = loss.class_dim();
  const Operand& x = loss.x;
  const Piece own =
      RankPieces(x.size(dim), x.layout(), call.ranks(), call.axis()->rank)[0];
  const at::Tensor target = loss.target.To(Layout::Same());
  const at::Tensor ignored = target.eq(loss.ignore_index);
  CheckTargets(target, ignored, x.size(dim));
  at::Tensor values = x.part().to(SumType(x.part().scalar_type()));
  std::vector<at::Tensor> terms;
  if (loss.of_logits) {
    const at::Tensor fixed = values.detach();
    at::Tensor largest =
        own.length > 0
            ? fixed.amax(dim)
            : at::full(target.sizes(), -std::numeric_limits<double>::infinity(),
                       fixed.options());
    AllReduce(largest, ReduceOp::kMax, call.axis()->group);
    values = values - largest.unsqueeze(dim);
    terms.push_back(values.exp().sum(dim));
  }
  const at::Tensor index = target - own.begin;
  const at::Tensor absent = index.lt(0).logical_or_(index.ge(own.length));
  terms.push_back(
      own.length > 0
          ? values.gather(dim, index.masked_fill(absent, 0).unsqueeze(dim))
                .squeeze(dim)
                .masked_fill(absent, 0)
          : values.sum(dim));
  if (loss.label_smoothing > 0) {
    at::Tensor weighted = values;
    if (loss.class_weights.defined()) {
      Sizes sizes(static_cast<size_t>(x.ndim()), 1);
      sizes[static_cast<size_t>(dim)] = own.length;
      weighted =
          values *
          loss.class_weights.narrow(0, own.begin, own.length).view(sizes);
    }
    terms.push_back(weighted.sum(dim));
  }
  const at::Tensor own_sums = at::stack(terms);
  const at::Tensor sums = Move(own_sums, Layout::Partial(), Layout::Same(),
                               own_sums.sizes().vec(), call.axis());
  const at::Tensor weights =
      TargetWeights(loss, target, ignored, values.scalar_type());
  if (!loss.of_logits) return {-sums[0] * weights, weights};
  const at::Tensor log_sum = sums[0].log();
  at::Tensor each = (log_sum - sums[1]) * weights;
  if (loss.label_smoothing > 0) {
    const auto num_classes = static_cast<double>(x.size(dim));
    const at::Tensor total =
        loss.class_weights.defined()
            ? log_sum * loss.class_weights.to(values.scalar_type()).sum()
            : log_sum * num_classes;
    each = each * (1 - loss.label_smoothing) +
           (total - sums[2]) * (loss.label_smoothing / num_classes);
  }
  return {each.masked_fill(ignored, 0), weights};
}

// Each rank has all classes for the rows that it holds.
Losses RowLosses(const ClassLoss& loss, const Layout& rows) {
  const at::Tensor target = loss.target.To(rows);
  const at::Tensor& x = loss.x.part();
  const at::Tensor each =
      loss.of_logits ? at::cross_entropy_loss(
                           x, target, loss.class_weights, at::Reduction::None,
                           loss.ignore_index, loss.label_smoothing)
                     : at::nll_loss_nd(x, target, loss.class_weights,
                                       at::Reduction::None, loss.ignore_index);
  return {each, TargetWeights(loss, target, target.eq(loss.ignore_index),
                              SumType(x.scalar_type()))};
}

std::optional<Values> ClassLossRule(Call& call, const ClassLoss& loss) {
  const Operand& x = loss.x;
  if (!x.is_shard() || x.ndim() != loss.target.ndim() + 1 ||
      loss.target.is_partial() || AsSharded(x.part()) != nullptr) {
    return std::nullopt;
  }
  const bool cuts_classes = x.is_shard(loss.class_dim());
  if (cuts_classes && (x.layout().blocks > 1 || x.layout().balanced)) {
    return std::nullopt;
  }
  const at::ScalarType dtype = x.part().scalar_type();
  if (cuts_classes) {
    const Losses losses = CutClassLosses(call, loss);
    at::Tensor result = losses.each;
    if (loss.reduction != at::Reduction::None) result = result.sum();
    if (loss.reduction == at::Reduction::Mean) {
      result = result / losses.weights.sum();
    }
    return Values{result.to(dtype)};
  }
  const Layout rows =
      x.layout().At(x.layout().dim == 0 ? 0 : x.layout().dim - 1);
  const Losses losses = RowLosses(loss, rows);
  if (loss.reduction == at::Reduction::None) {
    return Values{call.Wrapped(losses.each, rows, loss.target.sizes())};
  }
  const at::Tensor own = at::stack(
      {losses.each.sum(losses.weights.scalar_type()), losses.weights.sum()});
  const at::Tensor sums =
      Move(own, Layout::Partial(), Layout::Same(), {2}, call.axis());
  const bool is_mean = loss.reduction == at::Reduction::Mean;
  return Values{(is_mean ? sums[0] / sums[1] : sums[0]).to(dtype)};
}

}  // namespace

std::optional<Values> CrossEntropyRule(Call& call) {
  const ClassLoss loss{.x = call.operand(0),
                       .target = call.operand(1),
                       .class_weights = call.operand(2).To(Layout::Same()),
                       .reduction = call.arg(3).toInt(),
                       .ignore_index = call.arg(4).toInt(),
                       .label_smoothing = call.arg(5).toDouble()};
  // Class probabilities have as many dimensions as the logits.
  return ClassLossRule(call, loss);
}

std::optional<Values> NegativeLogLikelihoodRule(Call& call) {
  const ClassLoss loss{.x = call.operand(0),
                       .target = call.operand(1),
                       .class_weights = call.operand(2).To(Layout::Same()),
                       .of_logits = false,
                       .reduction = call.arg(3).toInt(),
                       .ignore_index = call.arg(4).toInt()};
  return ClassLossRule(call, loss);
}

std::optional<Values> ElementwiseLossRule(Call& call) {
  const size_t place = call.argument_index("reduction").value();
  const int64_t reduction = call.arg(place).toInt();
  Values args = call.args();
  args[place] = static_cast<int64_t>(at::Reduction::None);
  Call each = call.WithArgs(args);
  std::optional<Values> results = ElementwiseRule(each);
  if (!results.has_value() || reduction == at::Reduction::None) return results;
  const at::Tensor losses = (*results)[0].toTensor();
  return Values{reduction == at::Reduction::Mean ? at::mean(losses)
                                                 : at::sum(losses)};
}

}  // namespace fsdp::spmd
