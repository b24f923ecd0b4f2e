// SPDX-License-Identifier: Apache-2.0
// An object's pickle, rebuilt so that the tensors in it have their own storages
// in the new archive. Pure; thread-compatible.
#ifndef DCP_CHECKPOINT_OUTPUT_OBJECT_PICKLE_H_
#define DCP_CHECKPOINT_OUTPUT_OBJECT_PICKLE_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/format/value/value.h"

namespace dcp {

// A copy of the object in `arena`. Every tensor in it, and every storage
// outside a tensor, refers to the storage number that `add_storage` returns.
Value RebuildObject(ValueArena& arena, const ObjectEntry& object,
                    absl::FunctionRef<size_t(const TensorEntry&)> add_storage);

// All elements of `tensor`, in the stored type.
Payload WholePayload(const TensorEntry& tensor, SourceFiles* files,
                     DType dtype);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_OBJECT_PICKLE_H_
