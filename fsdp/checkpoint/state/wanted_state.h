// WantedState: a StateDict as the target of a load: its tensors, with the parts
// that this rank holds, and its plain values. For the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_WANTED_STATE_H_
#define FSDP_CHECKPOINT_STATE_WANTED_STATE_H_

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
#include "fsdp/checkpoint/source/checkpoint_source.h"
#include "fsdp/checkpoint/state/flat_state.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/checkpoint/state/tensor_parts.h"
#include "fsdp/mesh/dtensor.h"

namespace fsdp {

struct WantedTensor {
  std::string fqn;
  dcp::DType dtype = dcp::DType::kFloat32;
  dcp::Dims shape;                  // global
  at::Tensor local;                 // this rank's
  std::vector<TensorPart> parts;    // of `local`
  std::optional<DTensorSpec> spec;  // absent for a plain tensor
};

struct WantedState {
  StateDict expanded;
  std::vector<WantedTensor> tensors;
  std::vector<StateLeaf> objects;  // in `expanded`
};

// InvalidArgument, with the name, for a tensor that cannot be loaded into.
absl::StatusOr<std::unique_ptr<WantedState>> WantState(const StateDict& state);

// `wanted` as an index without storage places; only tensors for which
// `with_boxes` is true have their boxes.
dcp::Metadata DescribeWanted(const WantedState& wanted,
                             absl::FunctionRef<bool(size_t tensor)> with_boxes);

// Checks what `ranks` want against what is stored, before anything is read.
// Errors list every name that is missing (NotFound, unless `allow_partial`), or
// has another kind or shape or a type that cannot be converted
// (InvalidArgument). Returns the missing names.
absl::StatusOr<absl::flat_hash_set<std::string>> CheckWanted(
    const CheckpointSource& source, absl::Span<const dcp::Metadata> ranks,
    bool allow_partial);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_WANTED_STATE_H_
