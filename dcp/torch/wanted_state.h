// WantedState: a StateDict as something to load into: its tensors with the
// parts that this rank holds, and its plain values. For the thread that trains.
#ifndef DCP_TORCH_WANTED_STATE_H_
#define DCP_TORCH_WANTED_STATE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"
#include "dcp/torch/checkpoint_source.h"
#include "dcp/torch/flat_state.h"
#include "dcp/torch/state_value.h"
#include "dcp/torch/tensor_parts.h"
#include "fsdp/dtensor.h"

namespace dcp {

struct WantedTensor {
  std::string fqn;
  DType dtype = DType::kFloat32;
  Dims shape;                             // global
  at::Tensor local;                       // of this rank
  std::vector<TensorPart> parts;          // of `local`
  std::optional<fsdp::DTensorSpec> spec;  // absent for a plain tensor
};

struct WantedState {
  StateDict expanded;
  std::vector<WantedTensor> tensors;
  std::vector<StateLeaf> objects;  // in `expanded`
};

// InvalidArgument for tensors that cannot be loaded into, by name.
absl::StatusOr<std::unique_ptr<WantedState>> WantState(const StateDict& state);

// `wanted` as an index that says nothing of places; of the boxes, those of the
// tensors for which `with_boxes` is true.
Metadata DescribeWanted(const WantedState& wanted,
                        absl::FunctionRef<bool(size_t tensor)> with_boxes);

// Checks what `ranks` want against what is stored, before anything is read:
// NotFound, unless `allow_partial`, and InvalidArgument list every name that
// is missing, of another kind or shape, or of a type that is not convertible.
// Returns the names that are missing.
absl::StatusOr<absl::flat_hash_set<std::string>> CheckWanted(
    const CheckpointSource& source, absl::Span<const Metadata> ranks,
    bool allow_partial);

}  // namespace dcp

#endif  // DCP_TORCH_WANTED_STATE_H_
