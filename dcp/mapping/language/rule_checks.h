// SPDX-License-Identifier: Apache-2.0
// Checks one rule without a model or sizes. For rule_reader.cc; pure; any
// thread.
#ifndef DCP_MAPPING_LANGUAGE_RULE_CHECKS_H_
#define DCP_MAPPING_LANGUAGE_RULE_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/language/mapping_file.h"

namespace dcp {

// InvalidArgument unless all names among one side's terms have the same
// variables, and no variable is also an axis of its term.
absl::Status CheckTerms(const std::vector<MappingTerm>& terms,
                        absl::string_view side);

// InvalidArgument unless two sides of `rule` have equally many summands, and a
// size is known, from `file` or the rest of that side, for each axis and index
// that only one summand in a pair has.
absl::Status CheckRule(const MappingFile& file, const MappingRule& rule,
                       const std::string& a, const std::string& b);

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_RULE_CHECKS_H_
