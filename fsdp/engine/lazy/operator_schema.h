// SPDX-License-Identifier: Apache-2.0
// What the schema of an operator says of its arguments, and what it leaves out.
// Pure; any thread.
#ifndef FSDP_ENGINE_LAZY_OPERATOR_SCHEMA_H_
#define FSDP_ENGINE_LAZY_OPERATOR_SCHEMA_H_

#include <cstddef>

#include "ATen/core/function_schema.h"

namespace fsdp {

// Whether the operator may write into its argument `i`. Knows the collectives
// and batch norms, whose schemas do not say so.
bool WritesArgument(const c10::FunctionSchema& schema, size_t i);

// Whether the operator makes a view of its argument and reads no element.
bool OnlyMakesView(const c10::FunctionSchema& schema);

// Whether the result takes the place of the shard (Module::to).
bool MovesShards(const c10::FunctionSchema& schema);

}  // namespace fsdp

#endif  // FSDP_ENGINE_LAZY_OPERATOR_SCHEMA_H_
