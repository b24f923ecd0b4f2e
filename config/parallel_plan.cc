// SPDX-License-Identifier: Apache-2.0

#include "config/parallel_plan.h"

#include "config/dialect_of.h"
#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/document/plan_node.h"
#include "config/read_config.h"
#include "dcp/base/status.h"

namespace fsdp {

absl::StatusOr<dcp::ParallelPlan> parallel_plan_text(absl::string_view name,
                                                     absl::string_view text) {
  Findings findings;
  const config::Node root = config::ParseDocument(
      name, text, config::DetectSyntax(name, text), findings);
  dcp::ParallelPlan plan = read_parallel_plan(root, findings);
  DCP_RETURN_IF_ERROR(findings.ToStatus());
  return plan;
}

absl::StatusOr<dcp::ParallelPlan> load_parallel_plan(const std::string& path) {
  DCP_ASSIGN_OR_RETURN(const std::string text, config_text(path));
  return parallel_plan_text(path, text);
}

}  // namespace fsdp
