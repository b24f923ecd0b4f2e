// SPDX-License-Identifier: Apache-2.0
// The pickle of an object, rebuilt so that its tensors have storages of their
// own in the archive that it is written to. Pure; thread-compatible.
#ifndef DCP_CHECKPOINT_OUTPUT_OBJECT_PICKLE_H_
#define DCP_CHECKPOINT_OUTPUT_OBJECT_PICKLE_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/format/value/value.h"

namespace dcp {

// A copy of the object in `arena`. Every tensor in it, and every storage
// outside a tensor, refers to the storage whose number `add_storage` returns.
Value RebuildObject(ValueArena& arena, const ObjectEntry& object,
                    absl::FunctionRef<size_t(const TensorEntry&)> add_storage);

// All elements of `tensor`, in its own type.
Payload WholePayload(const TensorEntry& tensor, SourceFiles* files,
                     DType dtype);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_OBJECT_PICKLE_H_
