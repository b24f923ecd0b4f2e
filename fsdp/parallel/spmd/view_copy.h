// SPDX-License-Identifier: Apache-2.0
// Copies that stand for views. An operator such as `select` makes a view; of an
// activation in parts, cut along the dimension that it picks from, it can only
// gather the parts and copy them. A write into the copy would not reach the
// activation, and a write into the activation not the copy, as both would on
// one device. So the copy is marked: a write into it, and a use of it after the
// activation was written into, are errors. Called by the handler.
#ifndef FSDP_PARALLEL_SPMD_VIEW_COPY_H_
#define FSDP_PARALLEL_SPMD_VIEW_COPY_H_

#include "fsdp/parallel/spmd/call.h"

namespace fsdp::spmd {

// Marks those of the results that stand for views of an argument, and are not.
void MarkViewCopies(const Call& call, Values& results);

// Whether `tensor` is marked, or a view of one that is.
bool IsViewCopy(const at::Tensor& tensor);

// Throws c10::NotImplementedError if the operator writes into an argument that
// is marked, or the activation of one has been written into since.
void CheckViewCopies(const c10::FunctionSchema& schema,
                     c10::ArrayRef<c10::IValue> args);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_VIEW_COPY_H_
