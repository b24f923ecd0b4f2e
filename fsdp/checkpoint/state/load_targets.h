// SPDX-License-Identifier: Apache-2.0
// LoadTargets: the targets that a load fills, from a StateDict: tensors, with
// the parts that this rank holds, and plain values. For the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_LOAD_TARGETS_H_
#define FSDP_CHECKPOINT_STATE_LOAD_TARGETS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"
#include "fsdp/checkpoint/state/local_parts.h"
#include "fsdp/checkpoint/state/state_leaves.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/mesh/dtensor.h"

namespace fsdp {

struct TargetTensor {
  std::string fqn;
  dcp::DType dtype = dcp::DType::kFloat32;
  dcp::Dims shape;                  // global
  at::Tensor local;                 // this rank's
  std::vector<LocalPart> parts;     // views of `local`
  std::optional<DTensorSpec> spec;  // absent for a plain tensor
};

struct LoadTargets {
  StateDict expanded;
  std::vector<TargetTensor> tensors;
  std::vector<StateLeaf> objects;  // in `expanded`
};

// InvalidArgument, with the name, for a tensor that cannot be loaded into.
absl::StatusOr<std::unique_ptr<LoadTargets>> MakeLoadTargets(
    const StateDict& state);

// `targets` as an index without storage places; only tensors for which
// `with_boxes` is true have boxes.
dcp::Metadata DescribeTargets(
    const LoadTargets& targets,
    absl::FunctionRef<bool(size_t tensor)> with_boxes);

// An entry in such an index: a tensor and the boxes that a rank asks for.
dcp::MetadataEntry DescribeTensor(const std::string& fqn, dcp::DType dtype,
                                  dcp::Dims shape,
                                  absl::Span<const LocalPart> parts);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_LOAD_TARGETS_H_
