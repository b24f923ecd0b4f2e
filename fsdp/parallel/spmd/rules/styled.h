// SPDX-License-Identifier: Apache-2.0
// Applies a parameter's style to the input and the result of an operator that
// takes the parameter. For the thread that trains.
#ifndef FSDP_PARALLEL_SPMD_RULES_STYLED_H_
#define FSDP_PARALLEL_SPMD_RULES_STYLED_H_

#include <optional>

#include "ATen/core/Tensor.h"
#include "fsdp/parallel/spmd/call.h"

namespace fsdp::spmd {

// Treats a plain `input` as the part that style.input names.
void ApplyInputStyle(const OperatorStyle* style, Operand& input);

// The activation with sizes `whole` and this rank's `part` under `layout`,
// moved to style.output. `bias` is the tensor that the next operator adds to
// the result before it moves; null if there is none, or it was added already. A
// null style leaves the result in place.
at::Tensor ApplyOutputStyle(const Call& call, const OperatorStyle* style,
                            at::Tensor part, const Layout& layout,
                            const Sizes& whole, const c10::TensorImpl* bias);

// The layout of `output` if it is the plain part that ApplyOutputStyle returned
// last, for use_local_output, and `bias` is still to be added to it.
std::optional<Layout> FindLocalOutput(const at::Tensor& output,
                                      const at::Tensor& bias);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_RULES_STYLED_H_
