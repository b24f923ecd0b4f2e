// SPDX-License-Identifier: Apache-2.0
// LocalPart: a tensor part that a rank holds: a box in the whole tensor and a
// view of the rank's memory. Pure; for the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_LOCAL_PARTS_H_
#define FSDP_CHECKPOINT_STATE_LOCAL_PARTS_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "dcp/tensor/box.h"
#include "fsdp/mesh/dtensor.h"

namespace fsdp {

struct LocalPart {
  dcp::Box box;      // in the whole tensor
  at::Tensor local;  // the elements: a view of the local tensor
};

// One part, or several for uneven strided shards; none on a rank outside the
// mesh. InvalidArgument for a Partial, which holds no part of the value.
absl::StatusOr<std::vector<LocalPart>> FindLocalParts(const DTensor& tensor);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_LOCAL_PARTS_H_
