// SPDX-License-Identifier: Apache-2.0
// Checks of one rule of a mapping that need neither a model nor its sizes. For
// rule_reader.cc; pure; any thread.
#ifndef DCP_MAPPING_LANGUAGE_RULE_CHECKS_H_
#define DCP_MAPPING_LANGUAGE_RULE_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/language/mapping_file.h"

namespace dcp {

// InvalidArgument unless the names of the terms of one side have the same
// variables, none of which is also an axis of its term.
absl::Status CheckTerms(const std::vector<MappingTerm>& terms,
                        absl::string_view side);

// InvalidArgument unless two sides of `rule` have equally many summands, and
// each axis and index that one of a pair of summands lacks has a size that
// `file` or the rest of that side tells.
absl::Status CheckRule(const MappingFile& file, const MappingRule& rule,
                       const std::string& a, const std::string& b);

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_RULE_CHECKS_H_
