#include "fsdp/config/parallel_plan.h"

#include "dcp/base/status.h"
#include "fsdp/config/dialects/dialect_of.h"
#include "fsdp/config/document/document.h"
#include "fsdp/config/document/findings.h"
#include "fsdp/config/plan_node.h"
#include "fsdp/config/read_config.h"

namespace fsdp {

absl::StatusOr<dcp::ParallelPlan> parallel_plan_text(absl::string_view name,
                                                     absl::string_view text) {
  Findings findings;
  const config::Node root =
      config::ParseDocument(name, text, config::SyntaxOf(name, text), findings);
  dcp::ParallelPlan plan = read_parallel_plan(root, findings);
  DCP_RETURN_IF_ERROR(findings.ToStatus());
  return plan;
}

absl::StatusOr<dcp::ParallelPlan> load_parallel_plan(const std::string& path) {
  DCP_ASSIGN_OR_RETURN(const std::string text, config_text(path));
  return parallel_plan_text(path, text);
}

}  // namespace fsdp
