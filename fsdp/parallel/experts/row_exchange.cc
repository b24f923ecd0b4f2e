// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/row_exchange.h"

#include <vector>

#include "fsdp/mesh/mesh_collectives.h"
#include "torch/csrc/autograd/custom_function.h"

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Exchange : torch::autograd::Function<Exchange> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const std::vector<int64_t>& sent,
                            const std::vector<int64_t>& received,
                            const ProcessGroup& group) {
    context->saved_data["group"] = c10::IValue::make_capsule(group);
    context->saved_data["sent"] = sent;
    context->saved_data["received"] = received;
    return AllToAllRows(rows.contiguous(), sent, received, group);
  }
  // Calls the function itself, so that it can be differentiated again.
  static variable_list backward(AutogradContext* context,
                                variable_list gradients) {
    const auto group = c10::static_intrusive_pointer_cast<c10d::ProcessGroup>(
        context->saved_data["group"].toCapsule());
    return {ExchangeRows(gradients[0],
                         context->saved_data["received"].toIntVector(),
                         context->saved_data["sent"].toIntVector(), group),
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor ExchangeRows(const at::Tensor& rows,
                        const std::vector<int64_t>& sent,
                        const std::vector<int64_t>& received,
                        const ProcessGroup& group) {
  return Exchange::apply(rows, sent, received, group);
}

}  // namespace fsdp
