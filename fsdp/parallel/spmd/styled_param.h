// SPDX-License-Identifier: Apache-2.0
// StyledParam: a parameter that parallelize_module has cut, with the style's
// rules for operators that take it. The member means the whole parameter: the
// handler computes with this rank's part and moves activations as the style
// requires. For the thread that trains.
#ifndef FSDP_PARALLEL_SPMD_STYLED_PARAM_H_
#define FSDP_PARALLEL_SPMD_STYLED_PARAM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/parallel_param.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/layout.h"

namespace fsdp::spmd {

// How activations move at an operator that takes the parameter.
struct OperatorStyle {
  // A plain input is this part already; unset: it is the whole.
  std::optional<Placement> input;
  // Where the result is moved; unset: it stays as the operator leaves it.
  std::optional<Placement> output;
  // Whether the result is this rank's part, as a plain tensor.
  bool use_local_output = false;
  // SequenceParallel: the dimension by which a plain input is cut.
  std::optional<int64_t> sequence_dim;
};

struct StyledParam final : ParallelParam {
  StyledParam(DTensorSpec whole, AxisPtr mesh_axis, std::string full_name)
      : ParallelParam(std::move(whole)),
        axis(std::move(mesh_axis)),
        layout(ToLayout(spec.placements.front(),
                        static_cast<int64_t>(spec.shape.size()))),
        name(std::move(full_name)) {
    has_rules = true;
  }

  AxisPtr axis;
  Layout layout;
  std::string name;
  // A tied weight has both.
  OperatorStyle product;    // a linear, or any other operator
  OperatorStyle embedding;  // a lookup
  // The same module's bias, which is added to the result before it moves; null
  // without one.
  const c10::TensorImpl* bias = nullptr;
};

// Null unless `tensor` is a parameter's member and has a style.
const StyledParam* FindStyledParam(const at::Tensor& tensor);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_STYLED_PARAM_H_
