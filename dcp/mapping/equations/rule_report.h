// SPDX-License-Identifier: Apache-2.0
// What the rules of a mapping report of themselves while they are applied: for
// equation.cc and rule_application.cc. Pure; any thread.
#ifndef DCP_MAPPING_EQUATIONS_RULE_REPORT_H_
#define DCP_MAPPING_EQUATIONS_RULE_REPORT_H_

#include <cstddef>
#include <vector>

#include "dcp/mapping/equations/equation_sides.h"
#include "dcp/mapping/equations/mapped_tensors.h"

namespace dcp {

// The tensors and pieces that one instance of a rule has made: those from these
// numbers on.
struct InstanceResult {
  const MappedTensors& made;
  size_t first_tensor = 0;
  size_t first_piece = 0;
};

// Adds what an instance took and made to the report of its rule.
void ReportInstance(const EquationInstance& instance,
                    const EquationSources& sources,
                    const InstanceResult& result, RuleReport& report);

// A rule is applied to the model and to each slot of the optimizer's state, and
// reports each; here they become one report of each rule, in the order of the
// file.
std::vector<RuleReport> MergeReports(std::vector<RuleReport> reports);

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_RULE_REPORT_H_
