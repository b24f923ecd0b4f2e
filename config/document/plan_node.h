// SPDX-License-Identifier: Apache-2.0
// A tensor parallelism plan (parallel_plan.h) as a map within a document. Any
// thread.
#ifndef CONFIG_DOCUMENT_PLAN_NODE_H_
#define CONFIG_DOCUMENT_PLAN_NODE_H_

#include <string>

#include "config/document/document.h"
#include "config/document/findings.h"
#include "dcp/tensor/parallel_plan.h"

namespace fsdp {

// The map's entries in their order, without those that have a problem, which
// goes to `findings`.
dcp::ParallelPlan read_parallel_plan(const config::Node& map,
                                     Findings& findings);

// A style as a plan has it: "colwise", "{style: rowwise, output_layouts:
// shard(1)}".
std::string style_text(const dcp::ParallelStyle& style);

}  // namespace fsdp

#endif  // CONFIG_DOCUMENT_PLAN_NODE_H_
