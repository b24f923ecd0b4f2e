// SPDX-License-Identifier: Apache-2.0
// load_plan: a plan for parallelize_module, from a file that dcp-convert reads
// too, or from a part of a training config. For the thread that trains.
#ifndef FSDP_PARALLEL_TENSOR_LOAD_PLAN_H_
#define FSDP_PARALLEL_TENSOR_LOAD_PLAN_H_

#include <string>

#include "dcp/tensor/parallel_plan.h"
#include "fsdp/parallel/tensor/parallelize_module.h"

namespace fsdp {

// Reads YAML, JSON or TOML: see config/parallel_plan.h for the words. Throws
// c10::ValueError with every problem in the file.
ParallelizePlan load_plan(const std::string& path);

// The styles for the entries in `plan`. If the plan says that a module is an
// Embedding (embedding_rowwise, `embedding: true`), parallelize_module refuses
// one that is not, and the other way round.
ParallelizePlan to_parallelize_plan(const dcp::ParallelPlan& plan);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_TENSOR_LOAD_PLAN_H_
