// SPDX-License-Identifier: Apache-2.0
// Reports about a mapping's rules while they are applied. For equation.cc and
// rule_application.cc. Pure; any thread.
#ifndef DCP_MAPPING_EQUATIONS_RULE_REPORT_H_
#define DCP_MAPPING_EQUATIONS_RULE_REPORT_H_

#include <cstddef>
#include <vector>

#include "dcp/mapping/equations/equation_sides.h"
#include "dcp/mapping/equations/mapped_tensors.h"

namespace dcp {

// The tensors and pieces that one instance of a rule has made: from these
// numbers on.
struct InstanceResult {
  const MappedTensors& made;
  size_t first_tensor = 0;
  size_t first_piece = 0;
};

// Adds an instance's input and output to the rule's report.
void ReportInstance(const EquationInstance& instance,
                    const EquationSources& sources,
                    const InstanceResult& result, RuleReport& report);

// A rule is applied to the model and to each slot in the optimizer's state, and
// each time makes a report. These become one report per rule, in the file's
// order.
std::vector<RuleReport> MergeReports(std::vector<RuleReport> reports);

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_RULE_REPORT_H_
