// The pickle of an object whose tensors get storages of their own in the
// archive it is written to. Pure; thread-compatible.
#ifndef DCP_CHECKPOINT_OBJECT_PICKLE_H_
#define DCP_CHECKPOINT_OBJECT_PICKLE_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/checkpoint/output.h"
#include "dcp/format/value.h"

namespace dcp {

// A copy of the object in `arena`, in which every tensor, and every storage
// that stands by itself, refers to the storage that `add_storage` returns the
// number of.
Value RebuildObject(ValueArena& arena, const ObjectEntry& object,
                    absl::FunctionRef<size_t(const TensorEntry&)> add_storage);

// The whole of `tensor` in its own type.
Payload WholePayload(const TensorEntry& tensor, SourceFiles* files,
                     DType dtype);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OBJECT_PICKLE_H_
