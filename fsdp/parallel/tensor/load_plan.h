// SPDX-License-Identifier: Apache-2.0
// load_plan: the plan of parallelize_module from a file, which dcp-convert
// reads too, or from a part of a training config. For the thread that trains.
#ifndef FSDP_PARALLEL_TENSOR_LOAD_PLAN_H_
#define FSDP_PARALLEL_TENSOR_LOAD_PLAN_H_

#include <string>

#include "dcp/tensor/parallel_plan.h"
#include "fsdp/parallel/tensor/parallelize_module.h"

namespace fsdp {

// Reads YAML, JSON or TOML: see config/parallel_plan.h for the words.
// Throws c10::ValueError with every problem of the file.
ParallelizePlan load_plan(const std::string& path);

// The styles that the entries of `plan` mean. parallelize_module refuses a
// module that the plan's words say to be an Embedding (embedding_rowwise,
// `embedding: true`) and that is none, and the other way round.
ParallelizePlan to_parallelize_plan(const dcp::ParallelPlan& plan);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_TENSOR_LOAD_PLAN_H_
