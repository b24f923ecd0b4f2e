// SPDX-License-Identifier: Apache-2.0
// Copies that stand for views. An operator such as `select` makes a view. On an
// activation in parts, cut along the dimension that it picks from, it can only
// gather the parts and copy them. On one device a write into the view would
// reach the activation, and a write into the activation the view. The copy
// cannot do this. So the copy is marked: a write into it, and a use after a
// write into the activation, are errors. Called by the handler.
#ifndef FSDP_PARALLEL_SPMD_VIEW_COPY_H_
#define FSDP_PARALLEL_SPMD_VIEW_COPY_H_

#include "fsdp/parallel/spmd/call.h"

namespace fsdp::spmd {

// Marks the results that should be views of an argument but are copies.
void MarkViewCopies(const Call& call, Values& results);

// Whether `tensor` is marked, or a view of one that is.
bool IsViewCopy(const at::Tensor& tensor);

// Throws c10::NotImplementedError if the operator writes into a marked
// argument, or takes one after a write into the activation.
void CheckViewCopies(const c10::FunctionSchema& schema,
                     c10::ArrayRef<c10::IValue> args);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_VIEW_COPY_H_
