// SPDX-License-Identifier: Apache-2.0
// TensorCopy: the copy of a tensor in a state dict to a tensor in a module or
// optimizer, and checks that list every error before any tensor changes. For
// the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_TENSOR_COPIES_H_
#define FSDP_CHECKPOINT_STATE_TENSOR_COPIES_H_

#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/tensor/box.h"
#include "fsdp/checkpoint/state/local_parts.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/mesh/dtensor.h"

namespace fsdp {

struct TensorCopy {
  std::string name;                 // for errors
  at::Tensor dst;                   // if sharded: this rank's part
  std::optional<DTensorSpec> spec;  // set if sharded: the whole tensor's
  StateValue src;
};

// The differences between a state dict and the target module or optimizer.
struct Mismatches {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> wrong;  // "name: what is wrong"

  // OK, NotFound when names are missing and nothing else is wrong, else
  // InvalidArgument; all are listed.
  absl::Status ToStatus(absl::string_view what) const;
};

struct CopyRules {
  // Whole tensors are cut where the destination is sharded.
  bool full = false;
  // Sources may be on the meta device, because rank 0 has the values.
  bool values_elsewhere = false;
};

// If `copy` cannot be made, adds the reason to `mismatches.wrong`.
void CheckCopy(const TensorCopy& copy, const CopyRules& rules,
               Mismatches& mismatches);

// Copies, with a cast; collective when the source is a DTensor with other
// placements than the destination. `copy` has been checked.
absl::Status RunCopy(const TensorCopy& copy);

// A view of the part of `whole` that lies in `box`.
at::Tensor BoxView(const at::Tensor& whole, const dcp::Box& box);

// The parts of `copy.dst`, as views, with their boxes in the whole tensor.
absl::StatusOr<std::vector<LocalPart>> FindDestinationParts(
    const TensorCopy& copy);

// "an int", "a tensor": for errors.
absl::string_view KindName(const StateValue& value);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_TENSOR_COPIES_H_
