// SPDX-License-Identifier: Apache-2.0
// Moves parts between layouts with autograd Functions.
//
// Tested by tests/fsdp/parallel/spmd/sharded_test.cc.
#include "fsdp/parallel/spmd/moves.h"

#include <utility>
#include <vector>

#include "ATen/ops/cat.h"
#include "ATen/ops/zeros.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/managed_storage.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/parallel/spmd/sharded.h"
#include "torch/csrc/autograd/custom_function.h"

namespace fsdp::spmd {
namespace {

enum Step : int64_t {
  kNothing,
  kAllReduce,
  kCut,
  kGather,
  kReduceScatter,
  kExchange,
  kShare,
  kScale
};

// `tensor` with zeros after the first dimension, up to `rows`; contiguous.
at::Tensor PadRows(const at::Tensor& tensor, int64_t rows) {
  if (tensor.size(0) == rows) return tensor.contiguous();
  Sizes sizes = tensor.sizes().vec();
  sizes[0] = rows;
  at::Tensor padded = at::zeros(sizes, tensor.options());
  padded.narrow(0, 0, tensor.size(0)).copy_(tensor);
  return padded;
}

int64_t RankPartLength(int64_t length, const Layout& shard, const Axis& axis,
                       int64_t rank) {
  return PartLength(length, shard, axis.size, rank);
}

// The longest part on any rank; others are padded to it. Rank 0 has it, except
// that balanced parts may be unequal in any order.
int64_t LongestPart(int64_t length, const Layout& shard, const Axis& axis) {
  int64_t longest = 0;
  for (int64_t r = 0; r < axis.size; ++r) {
    longest = std::max(longest, RankPartLength(length, shard, axis, r));
  }
  return longest;
}

at::Tensor CutForRank(const at::Tensor& whole, const Layout& shard,
                      const Axis& axis, int64_t rank) {
  std::vector<at::Tensor> pieces;
  for (const Piece& piece :
       RankPieces(whole.size(shard.dim), shard, axis.size, rank)) {
    pieces.push_back(whole.narrow(shard.dim, piece.begin, piece.length));
  }
  return pieces.size() == 1 ? pieces[0].contiguous()
                            : at::cat(pieces, shard.dim);
}

at::Tensor Gather(const at::Tensor& part, const Layout& shard, int64_t length,
                  const Axis& axis) {
  const int64_t longest = LongestPart(length, shard, axis);
  const at::Tensor rows =
      AllGather(PadRows(part.movedim(shard.dim, 0), longest), axis.group);
  const bool in_order = shard.blocks == 1 && !shard.balanced;
  if (in_order) {
    return rows.flatten(0, 1)
        .narrow(0, 0, length)
        .movedim(0, shard.dim)
        .contiguous();
  }
  Sizes sizes = rows.sizes().vec();
  sizes.erase(sizes.begin());
  sizes[0] = length;
  at::Tensor whole = rows.new_empty(sizes);
  for (int64_t r = 0; r < axis.size; ++r) {
    int64_t offset = 0;
    for (const Piece& piece : RankPieces(length, shard, axis.size, r)) {
      whole.narrow(0, piece.begin, piece.length)
          .copy_(rows[r].narrow(0, offset, piece.length));
      offset += piece.length;
    }
  }
  return whole.movedim(0, shard.dim).contiguous();
}

at::Tensor ReduceScatterTo(const at::Tensor& whole, const Layout& shard,
                           const Axis& axis) {
  const int64_t length = whole.size(shard.dim);
  const int64_t longest = LongestPart(length, shard, axis);
  at::Tensor rows;
  if (shard.blocks == 1 && !shard.balanced) {
    rows = PadRows(whole.movedim(shard.dim, 0), longest * axis.size)
               .unflatten(0, {axis.size, longest});
  } else {
    std::vector<at::Tensor> parts;
    for (int64_t r = 0; r < axis.size; ++r) {
      parts.push_back(PadRows(
          CutForRank(whole, shard, axis, r).movedim(shard.dim, 0), longest));
    }
    rows = at::stack(parts);
  }
  return ReduceScatter(rows, ReduceOp::kSum, axis.group)
      .narrow(0, 0, RankPartLength(length, shard, axis, axis.rank))
      .movedim(0, shard.dim)
      .contiguous();
}

at::Tensor AllReduceSum(const at::Tensor& part, const Axis& axis) {
  at::Tensor sum = part.clone(at::MemoryFormat::Contiguous);
  AllReduce(sum, ReduceOp::kSum, axis.group);
  return sum;
}

// From a cut along one dimension to a cut along another.
at::Tensor Exchange(const at::Tensor& part, const Layout& from,
                    const Layout& to, const Sizes& whole, const Axis& axis) {
  const int64_t old_length = whole[static_cast<size_t>(from.dim)];
  const int64_t new_length = whole[static_cast<size_t>(to.dim)];
  Sizes block = whole;
  block[static_cast<size_t>(from.dim)] = LongestPart(old_length, from, axis);
  block[static_cast<size_t>(to.dim)] = LongestPart(new_length, to, axis);
  Sizes sizes = block;
  sizes.insert(sizes.begin(), axis.size);
  at::Tensor sent = at::zeros(sizes, part.options());
  for (int64_t r = 0; r < axis.size; ++r) {
    const at::Tensor mine = CutForRank(part, to, axis, r);
    sent[r]
        .narrow(from.dim, 0, mine.size(from.dim))
        .narrow(to.dim, 0, mine.size(to.dim))
        .copy_(mine);
  }
  const at::Tensor received = AllToAll(sent, axis.group);
  Sizes result_sizes = PartSizes(whole, to, axis.size, axis.rank);
  at::Tensor result = part.new_empty(result_sizes);
  const int64_t rows = result_sizes[static_cast<size_t>(to.dim)];
  for (int64_t r = 0; r < axis.size; ++r) {
    int64_t offset = 0;
    for (const Piece& piece : RankPieces(old_length, from, axis.size, r)) {
      result.narrow(from.dim, piece.begin, piece.length)
          .copy_(received[r]
                     .narrow(to.dim, 0, rows)
                     .narrow(from.dim, offset, piece.length));
      offset += piece.length;
    }
  }
  return result;
}

// One step forward and its dual backward. `shard` is the cut that one of them
// makes and the other undoes; `other` is the second cut in an exchange.
struct Route {
  Step there;
  Step back;
  Layout shard = {};
  Layout other = {};
  Sizes whole = {};
  AxisPtr axis;

  Route Reversed() const {
    return {back,  there, there == kExchange ? other : shard,
            shard, whole, axis};
  }
};

at::Tensor Do(const Route& route, const at::Tensor& x) {
  const Axis& axis = *route.axis;
  switch (route.there) {
    case kNothing:
      return x.view_as(x);
    case kAllReduce:
      return AllReduceSum(x, axis);
    case kCut:
      return Cut(x, route.shard, axis);
    case kGather:
      return Gather(x, route.shard,
                    route.whole[static_cast<size_t>(route.shard.dim)], axis);
    case kReduceScatter:
      return ReduceScatterTo(x, route.shard, axis);
    case kExchange:
      return Exchange(x, route.shard, route.other, route.whole, axis);
    case kShare:
      return x / axis.size;
    case kScale:
      return x * axis.size;
  }
  return x;
}

// The result has separate memory even if nothing was communicated, so that a
// write into a part does not change the tensor that it was cut from. It is not
// a view, because autograd refuses writes into views that a Function returns.
at::Tensor Moved(const Route& route, const at::Tensor& x) {
  at::Tensor moved = Do(route, x);
  if (route.there == kNothing) return moved;
  return moved.is_alias_of(x) ? moved.clone() : moved.variable_data();
}

// Keeps a Route in a Function's saved data.
struct RouteHolder : torch::CustomClassHolder {
  explicit RouteHolder(Route held) : route(std::move(held)) {}
  Route route;
};

at::Tensor Take(const at::Tensor& x, Route route);

struct MoveFunction : torch::autograd::Function<MoveFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx,
                            const at::Tensor& x, const Route& route) {
    ctx->saved_data["route"] = c10::IValue::make_capsule(
        c10::make_intrusive<RouteHolder>(route.Reversed()));
    return Moved(route, x);
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx,
      torch::autograd::variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    const auto holder = c10::static_intrusive_pointer_cast<RouteHolder>(
        ctx->saved_data["route"].toCapsule());
    // Some derivatives give zeros without memory.
    const at::Tensor grad =
        grads[0]._is_zerotensor()
            ? at::zeros(grads[0].sizes(), grads[0].options())
            : grads[0];
    return {Take(grad, holder->route), at::Tensor()};
  }
};

at::Tensor Take(const at::Tensor& x, Route route) {
  const bool records = x.requires_grad() && c10::GradMode::is_enabled();
  if (!records) return route.there == kNothing ? x : Moved(route, x);
  return MoveFunction::apply(x, route);
}

// `part` in the place of the part in `inner`.
at::Tensor WrapAs(const Sharded& inner, at::Tensor part, const Sizes& sizes) {
  return inner.param == nullptr
             ? Wrap(std::move(part), inner.layout, inner.axis, sizes)
             : WrapView(std::move(part), *inner.param, inner.layout, sizes);
}

// A part that is itself Sharded, on an inner axis: the tensors in the inner
// parts move, unless both axes cut the same dimension.
at::Tensor MoveNested(Sharded& inner, const Layout& from, const Layout& to,
                      bool varying, const Sizes& whole, const AxisPtr& axis) {
  const auto conflicts = [&](const Layout& layout) {
    return layout.is_shard() && inner.layout.is_shard(layout.dim);
  };
  const Sizes sizes = inner.sizes().vec();
  if (from == to && !varying) {
    return WrapAs(inner, inner.local, sizes);
  }
  if (conflicts(from) || conflicts(to) || inner.pending.has_value()) {
    const Layout settled =
        inner.pending.has_value() && !conflicts(from) && !conflicts(to)
            ? inner.pending->to
            : Layout::Same();
    const at::Tensor part =
        Move(inner.local, inner.layout, settled, sizes, inner.axis);
    const at::Tensor wrapped = Wrap(part, settled, inner.axis, sizes);
    return varying ? MoveToVarying(wrapped, from, whole, axis)
                   : Move(wrapped, from, to, whole, axis);
  }
  Sizes inner_whole = whole;
  Sizes result = PartSizes(whole, to, axis->size, axis->rank);
  if (inner.layout.is_shard()) {
    const auto dim = static_cast<size_t>(inner.layout.dim);
    inner_whole[dim] = inner.local.size(inner.layout.dim);
  }
  const at::Tensor moved =
      varying ? MoveToVarying(inner.local, from, inner_whole, axis)
              : Move(inner.local, from, to, inner_whole, axis);
  return WrapAs(inner, moved, result);
}

}  // namespace

bool IsAveragedByFullyShard(const at::Tensor& member, Axis& axis) {
  const ManagedStorage* storage = FindManagedStorage(member);
  if (storage == nullptr || storage->owner() == nullptr) return false;
  const GroupConfig& config = storage->owner()->group().config();
  return IsAveragedBy(config.shard_group, axis) ||
         (config.replicate_group && IsAveragedBy(config.replicate_group, axis));
}

at::Tensor Cut(const at::Tensor& whole, const Layout& shard, const Axis& axis) {
  return CutForRank(whole, shard, axis, axis.rank);
}

at::Tensor Move(const at::Tensor& part, const Layout& from, const Layout& to,
                const Sizes& whole, const AxisPtr& axis) {
  if (Sharded* inner = AsSharded(part)) {
    return MoveNested(*inner, from, to, /*varying=*/false, whole, axis);
  }
  if (from == to) return part;
  const auto take = [&](Step there, Step back, const Layout& shard) {
    return Take(part, {.there = there,
                       .back = back,
                       .shard = shard,
                       .other = {},
                       .whole = whole,
                       .axis = axis});
  };
  if (from.is_same()) {
    return to.is_shard() ? take(kCut, kGather, to) : take(kShare, kNothing, {});
  }
  if (from.is_partial()) {
    return to.is_shard() ? take(kReduceScatter, kGather, to)
                         : take(kAllReduce, kNothing, {});
  }
  if (to.is_same()) return take(kGather, kCut, from);
  if (to.is_shard() && to.dim != from.dim) {
    return Take(part, {.there = kExchange,
                       .back = kExchange,
                       .shard = from,
                       .other = to,
                       .whole = whole,
                       .axis = axis});
  }
  // Another cut along the same dimension, or a sum.
  return Move(Move(part, from, Layout::Same(), whole, axis), Layout::Same(), to,
              whole, axis);
}

at::Tensor MoveToVarying(const at::Tensor& part, const Layout& from,
                         const Sizes& whole, const AxisPtr& axis) {
  if (Sharded* inner = AsSharded(part)) {
    return MoveNested(*inner, from, Layout::Same(), /*varying=*/true, whole,
                      axis);
  }
  Route route{.there = kNothing,
              .back = kAllReduce,
              .shard = {},
              .other = {},
              .whole = whole,
              .axis = axis};
  // fully_shard will take the mean over the axis where the sum is needed.
  if (from.is_same() && IsAveragedByFullyShard(part, *axis)) {
    route.back = kScale;
  }
  if (from.is_partial()) route.there = kAllReduce;
  if (from.is_shard()) {
    route.there = kGather;
    route.back = kReduceScatter;
    route.shard = from;
  }
  return Take(part, std::move(route));
}

at::Tensor ShareGradient(const at::Tensor& whole, const AxisPtr& axis) {
  return Take(whole, {.there = kNothing,
                      .back = kShare,
                      .shard = {},
                      .other = {},
                      .whole = whole.sizes().vec(),
                      .axis = axis});
}

at::Tensor MultiplyGradient(const at::Tensor& whole, const AxisPtr& axis) {
  return Take(whole, {.there = kNothing,
                      .back = kScale,
                      .shard = {},
                      .other = {},
                      .whole = whole.sizes().vec(),
                      .axis = axis});
}

}  // namespace fsdp::spmd
