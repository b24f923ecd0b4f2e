// SPDX-License-Identifier: Apache-2.0
// How an operator treats the arguments: by the schema, and where the schema
// omits it, by name. Pure; any thread.
#ifndef FSDP_ENGINE_LAZY_OPERATOR_SCHEMA_H_
#define FSDP_ENGINE_LAZY_OPERATOR_SCHEMA_H_

#include <cstddef>

#include "ATen/core/function_schema.h"

namespace fsdp {

// Whether the operator may write into argument `i`. Knows the collectives and
// batch norms, which do not declare it.
bool WritesArgument(const c10::FunctionSchema& schema, size_t i);

// Whether the operator only makes a view and reads no element.
bool OnlyMakesView(const c10::FunctionSchema& schema);

// Whether the result replaces the shard (Module::to).
bool MovesShards(const c10::FunctionSchema& schema);

}  // namespace fsdp

#endif  // FSDP_ENGINE_LAZY_OPERATOR_SCHEMA_H_
