// SPDX-License-Identifier: Apache-2.0
// The ring, as an autograd Function. With n ranks, in step i rank r has the
// keys and values of rank r - i:
//
//   forward, step i                     backward, step i
//   1. send k, v on; receive the next   1. send k, v on; receive the next
//   2. attend to k, v; merge            2. this block's share in dq, dk, dv
//   3. wait for 1                       3. wait for dk, dv of this block from
//                                          the rank before; add the share
//                                       4. send dk, dv on
//                                       5. wait for 1
//
// So messages travel while step 2 computes. After the last step of backward,
// each rank receives the gradients of its own keys and values.
//
// Tested by tests/fsdp/parallel/context/sequence_attention_test.cc.
#include "fsdp/parallel/context/ring_attention.h"

#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "ATen/Functions.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/collective_order.h"
#include "fsdp/parallel/context/block_attention.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/csrc/distributed/c10d/Types.hpp"

namespace fsdp {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

// What travels together: keys and values, or their gradients.
struct KeyValues {
  at::Tensor k;
  at::Tensor v;
};

// The place of this rank in the ring.
class Ring {
 public:
  explicit Ring(const RingPlan& plan)
      : plan_(plan),
        size_(plan.group->getSize()),
        rank_(plan.group->getRank()) {}

  int64_t size() const { return size_; }
  // The rank with keys that this rank has in step `step`.
  int64_t Source(int64_t step) const { return (rank_ - step + size_) % size_; }
  int64_t KeyLength(int64_t step) const {
    return plan_.key_lengths[static_cast<size_t>(Source(step))];
  }
  const std::vector<RingTile>& Tiles(int64_t step) const {
    return plan_.tiles[static_cast<size_t>(Source(step))];
  }
  int64_t next() const { return (rank_ + 1) % size_; }
  int64_t previous() const { return (rank_ + size_ - 1) % size_; }
  const RingPlan& plan() const { return plan_; }
  BlockForm Form(const RingTile& tile) const {
    return {tile.is_causal, plan_.scale};
  }

 private:
  const RingPlan& plan_;
  const int64_t size_;
  const int64_t rank_;
};

// Contiguous tensors on the way to the next rank, and those from the previous
// one. An all-to-all in which each rank sends to one rank: NCCL and Gloo both
// have it, and it cannot wait in a circle, as messages between two ranks can.
class Rotation {
 public:
  // The received tensors have `received_length` keys.
  Rotation(const Ring& ring, KeyValues sent, int64_t received_length)
      : ring_(ring), sent_(std::move(sent)) {
    received_ = {Start(sent_.k, received_length),
                 Start(sent_.v, received_length)};
  }
  // The caller's stream then has them.
  KeyValues Wait() {
    for (const Work& work : works_) {
      WaitForWork(work, *ring_.plan().group, kOperation);
    }
    return std::move(received_);
  }

 private:
  static constexpr const char* kOperation = "a step of ring attention";

  at::Tensor Start(const at::Tensor& sent, int64_t received_length) {
    if (ring_.size() == 1) return sent;
    std::vector<int64_t> sizes = sent.sizes().vec();
    sizes[2] = received_length;
    at::Tensor received = at::empty(sizes, sent.options());
    const auto count = static_cast<size_t>(ring_.size());
    std::vector<int64_t> to(count, 0);
    std::vector<int64_t> from(count, 0);
    at::Tensor src = sent.view({-1}).view(at::kByte);
    at::Tensor dst = received.view({-1}).view(at::kByte);
    to[static_cast<size_t>(ring_.next())] = src.numel();
    from[static_cast<size_t>(ring_.previous())] = dst.numel();
    const ProcessGroup& group = ring_.plan().group;
    works_.push_back(IssueWork(*group, kOperation, [&] {
      return group->getBackend(sent.device().type())
          ->alltoall_base(dst, src, from, to);
    }));
    return received;
  }

  const Ring& ring_;
  const KeyValues sent_;  // until they have left
  KeyValues received_;
  std::vector<Work> works_;
};

void CheckRing(const Ring& ring, const at::Tensor& q, bool is_backward) {
  CheckInStep(
      ring.plan().group, q.device().type(),
      absl::StrCat(ring.plan().description, is_backward ? ", backward" : ""),
      "attention");
}

AttendedBlock Narrowed(const AttendedBlock& block, const RingTile& tile) {
  return {block.out.narrow(2, tile.q_begin, tile.q_length),
          block.lse.narrow(2, tile.q_begin, tile.q_length)};
}

// Adds `share` to rows [begin, ...) of dim 2 in `sum`, which has `sizes`. An
// undefined `sum` is zeros; it becomes `share` itself where that is the whole.
void AddRows(at::Tensor& sum, c10::IntArrayRef sizes, int64_t begin,
             const at::Tensor& share, c10::ScalarType dtype) {
  if (!sum.defined() && share.size(2) == sizes[2]) {
    sum = share.to(dtype);
    return;
  }
  if (!sum.defined()) sum = at::zeros(sizes, share.options().dtype(dtype));
  sum.narrow(2, begin, share.size(2)).add_(share);
}

// No key at all, in MergeDtype.
AttendedBlock NothingAttended(const at::Tensor& q, const at::Tensor& v) {
  const at::TensorOptions options =
      q.options().dtype(MergeDtype(q.scalar_type()));
  return {at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, options),
          at::full({q.size(0), q.size(1), q.size(2)},
                   -std::numeric_limits<double>::infinity(), options)};
}

// `out` in MergeDtype.
AttendedBlock Forward(const Ring& ring, const at::Tensor& q, KeyValues keys) {
  const c10::ScalarType dtype = MergeDtype(q.scalar_type());
  AttendedBlock merged;
  for (int64_t step = 0; step < ring.size(); ++step) {
    std::optional<Rotation> rotation;
    if (step + 1 < ring.size()) {
      rotation.emplace(ring, keys, ring.KeyLength(step + 1));
    }
    for (const RingTile& tile : ring.Tiles(step)) {
      const AttendedBlock block =
          AttendBlock(q.narrow(2, tile.q_begin, tile.q_length),
                      keys.k.narrow(2, 0, tile.k_length),
                      keys.v.narrow(2, 0, tile.k_length), ring.Form(tile));
      if (!merged.out.defined() && tile.q_length == q.size(2)) {
        merged = {block.out.to(dtype), block.lse};
        continue;
      }
      if (!merged.out.defined()) merged = NothingAttended(q, keys.v);
      MergeBlock(Narrowed(merged, tile), block);
    }
    if (rotation.has_value()) keys = rotation->Wait();
  }
  return merged.out.defined() ? merged : NothingAttended(q, keys.v);
}

// This block's share in the gradients of its keys and values, in MergeDtype;
// undefined without one. Adds the queries' to `dq`.
KeyValues StepBackward(const Ring& ring, int64_t step, const at::Tensor& grad,
                       const at::Tensor& q, const KeyValues& keys,
                       const AttendedBlock& attended, at::Tensor& dq) {
  const c10::ScalarType dtype = MergeDtype(q.scalar_type());
  KeyValues sums;
  for (const RingTile& tile : ring.Tiles(step)) {
    const BlockGradients share = AttendBlockBackward(
        grad.narrow(2, tile.q_begin, tile.q_length),
        q.narrow(2, tile.q_begin, tile.q_length),
        keys.k.narrow(2, 0, tile.k_length), keys.v.narrow(2, 0, tile.k_length),
        Narrowed(attended, tile), ring.Form(tile));
    AddRows(dq, q.sizes(), tile.q_begin, share.q, dtype);
    AddRows(sums.k, keys.k.sizes(), 0, share.k, dtype);
    AddRows(sums.v, keys.v.sizes(), 0, share.v, dtype);
  }
  return sums;
}

at::Tensor ZerosLike(const at::Tensor& tensor) {
  return at::zeros(tensor.sizes(),
                   tensor.options().dtype(MergeDtype(tensor.scalar_type())));
}

// The sums that arrived for a block, and this rank's share; either may be
// undefined. Contiguous.
KeyValues Added(KeyValues sums, const KeyValues& share, const KeyValues& keys) {
  if (!sums.k.defined() && !share.k.defined()) {
    return {ZerosLike(keys.k), ZerosLike(keys.v)};
  }
  if (!sums.k.defined()) return {share.k.contiguous(), share.v.contiguous()};
  if (share.k.defined()) {
    sums.k.add_(share.k);
    sums.v.add_(share.v);
  }
  return sums;
}

BlockGradients Backward(const Ring& ring, const at::Tensor& grad,
                        const at::Tensor& q, KeyValues keys,
                        const AttendedBlock& attended) {
  at::Tensor dq;
  std::optional<Rotation> gradients;
  for (int64_t step = 0; step < ring.size(); ++step) {
    std::optional<Rotation> rotation;
    if (step + 1 < ring.size()) {
      rotation.emplace(ring, keys, ring.KeyLength(step + 1));
    }
    const KeyValues share =
        StepBackward(ring, step, grad, q, keys, attended, dq);
    KeyValues sums = gradients.has_value() ? gradients->Wait() : KeyValues();
    gradients.reset();
    sums = Added(std::move(sums), share, keys);
    if (rotation.has_value()) keys = rotation->Wait();
    gradients.emplace(ring, std::move(sums), ring.KeyLength(step + 1));
  }
  const KeyValues own = gradients->Wait();
  return {dq.defined() ? dq : ZerosLike(q), own.k, own.v};
}

// The same values with neighbouring elements along the last dimension, and with
// memory: some derivatives give zeros without it.
at::Tensor WithRows(const at::Tensor& tensor) {
  if (tensor._is_zerotensor())
    return at::zeros(tensor.sizes(), tensor.options());
  return tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}

// Keeps a RingPlan in the Function's saved data.
struct PlanHolder : torch::CustomClassHolder {
  explicit PlanHolder(RingPlan held) : plan(std::move(held)) {}
  const RingPlan plan;
};

struct RingFunction : torch::autograd::Function<RingFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx,
                            const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const RingPlan& plan) {
    const Ring ring(plan);
    CheckRing(ring, q, /*is_backward=*/false);
    const AttendedBlock attended = Forward(ring, q, {k, v});
    at::Tensor out = attended.out.to(q.scalar_type());
    ctx->saved_data["plan"] =
        c10::IValue::make_capsule(c10::make_intrusive<PlanHolder>(plan));
    ctx->save_for_backward({q, k, v, out, attended.lse});
    return out;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx,
      torch::autograd::variable_list grads) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !c10::GradMode::is_enabled(),
        "ring attention has no second derivative: backward with "
        "create_graph=true requires the method allgather");
    const auto saved = ctx->get_saved_variables();
    const auto holder = c10::static_intrusive_pointer_cast<PlanHolder>(
        ctx->saved_data["plan"].toCapsule());
    const Ring ring(holder->plan);
    const at::Tensor& q = saved[0];
    const at::Tensor grad = WithRows(grads[0]);
    CheckRing(ring, q, /*is_backward=*/true);
    const BlockGradients result =
        Backward(ring, grad, q, {saved[1], saved[2]}, {saved[3], saved[4]});
    return {result.q.to(q.scalar_type()), result.k.to(q.scalar_type()),
            result.v.to(q.scalar_type()), at::Tensor()};
  }
};

}  // namespace

at::Tensor RingAttention(const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, const RingPlan& plan) {
  return RingFunction::apply(WithRows(q), k.contiguous(), v.contiguous(), plan);
}

}  // namespace fsdp
