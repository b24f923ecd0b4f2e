// SPDX-License-Identifier: Apache-2.0
// SolveSizes: the axis sizes for one instance of a rule, from the model and the
// source shapes. For equation.cc; pure.
#ifndef DCP_MAPPING_EQUATIONS_INSTANCE_SIZES_H_
#define DCP_MAPPING_EQUATIONS_INSTANCE_SIZES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "dcp/mapping/equations/equation_sides.h"
#include "dcp/mapping/language/axes.h"
#include "dcp/mapping/language/mapping_file.h"
#include "dcp/mapping/language/model_sizes.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

struct InstanceSizes {
  // sizes for every axis, and for the indices to spread
  AxisSizes sizes;
  std::vector<Axes> src_axes;  // per term, without "..."
  std::vector<Axes> dst_axes;
  DType dtype = DType::kFloat32;
  // Scalars in an optimizer's state, such as the step: one value for all
  // sources and all destinations, whatever the axes are.
  bool are_scalars = false;
};

// The instance's sources are complete. DataLoss if their shapes contradict the
// rule or the model, and InvalidArgument if they leave a size open.
absl::StatusOr<InstanceSizes> SolveSizes(const MappingRule& rule,
                                         const EquationSides& sides,
                                         const EquationInstance& instance,
                                         const EquationSources& sources,
                                         ModelSizes& model);

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_INSTANCE_SIZES_H_
