// SPDX-License-Identifier: Apache-2.0
// Random operators and those that make tensors like others.
//
// Every rank draws the whole tensor's numbers and takes a part, so that they do
// not depend on the rank count, and all ranks' generators go on alike.
//
// Tested by tests/fsdp/parallel/spmd/rules/layers_test.cc.

#include <utility>

#include "ATen/ops/dropout.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/ones.h"
#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/rules/rules.h"

namespace fsdp::spmd {
namespace {

// Another generator than the default may be in another state on each rank.
bool HasGenerator(const Call& call) {
  const auto place = call.argument_index("generator");
  return place.has_value() && !call.arg(*place).isNone();
}

at::Tensor CutAs(const at::Tensor& whole, const Layout& layout,
                 const Call& call) {
  return layout.is_shard() ? Cut(whole, layout, *call.axis()) : whole;
}

}  // namespace

std::optional<Values> DropoutRule(Call& call) {
  const Operand x = call.operand(0);
  const double p = call.arg(1).toDouble();
  if (!call.arg(2).toBool() || p == 0) return Values{call.arg(0)};
  // The factor for each element, from the operator on the whole, whichever
  // kernel it has.
  const at::Tensor factors =
      at::dropout(at::ones(x.sizes(), x.part().options()), p, /*train=*/true);
  const at::Tensor own = CutAs(factors, x.layout(), call);
  if (!call.writes(0)) {
    return Values{call.Wrapped(x.part() * own, x.layout(), x.sizes())};
  }
  Sharded* self = x.sharded();
  if (self == nullptr) return std::nullopt;
  self->Assign(self->local.mul_(own), self->layout);
  Sharded::Guard(call.arg(0).toTensor());
  return Values{call.arg(0)};
}

std::optional<Values> RandomRule(Call& call) {
  const Operand x = call.operand(0);
  Sharded* self = x.sharded();
  if (HasGenerator(call) || self == nullptr || call.has_tensor(1) ||
      (!x.is_shard() && self->local.is_view())) {
    return std::nullopt;
  }
  const at::Tensor whole = at::empty(x.sizes(), x.part().options());
  Values args = call.args();
  args[0] = whole;
  call.Run(std::move(args));
  const Layout layout = x.is_shard() ? x.layout() : Layout::Same();
  self->Assign(self->local.copy_(CutAs(whole, layout, call)), layout);
  return Values{call.arg(0)};
}

std::optional<Values> RandomLikeRule(Call& call) {
  const Operand x = call.operand(0);
  if (HasGenerator(call)) return std::nullopt;
  Values args = call.args();
  args[0] = at::empty(x.sizes(), x.part().options());
  const at::Tensor whole = call.Run(std::move(args))[0].toTensor();
  const Layout layout = x.is_shard() ? x.layout() : Layout::Same();
  return Values{call.Wrapped(CutAs(whole, layout, call), layout, x.sizes())};
}

std::optional<Values> LikeRule(Call& call) {
  const Operand x = call.operand(0);
  Values args = call.args();
  args[0] = x.part();
  return call.Run(std::move(args), x.is_shard() ? x.layout() : Layout::Same(),
                  x.sizes());
}

std::optional<Values> NewRule(Call& call) {
  Values args = call.args();
  args[0] = call.operand(0).part();
  return call.Run(std::move(args));
}

std::optional<Values> ItemRule(Call& call) {
  Values args = call.args();
  args[0] = call.operand(0).To(Layout::Same());
  return call.Run(std::move(args));
}

}  // namespace fsdp::spmd
