// SPDX-License-Identifier: Apache-2.0
// The rules between a mapping's two sides, with the sizes that a model's
// config.json gives, for maps show. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_MAPS_RULES_H_
#define TOOLS_DCP_CONVERT_OUTPUT_MAPS_RULES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/language/model_sizes.h"

namespace dcp::tools {

struct ShownRule {
  struct Term {
    std::string name;  // "0": zeros
    // "(group=2 q=2 2 r) c": axes with their sizes; empty: the shape stays.
    std::string axes;
  };

  int line = 0;
  std::vector<Term> from;
  std::vector<Term> to;
  // The rule's other conditions: "if not tied", "i = 0 .. 2", "for states
  // only".
  std::vector<std::string> notes;
};

// Between the pivot and another side.
struct ShownRules {
  std::string from;
  std::string to;
  std::vector<ShownRule> rules;
  // The lines with rules that this model does not need, because their `when` is
  // 0.
  std::vector<int> idle;
};

struct ShownMapping {
  std::string name;
  std::vector<std::string> sizes;  // "group = num_key_value_heads = 2"
  std::vector<ShownRules> steps;   // two, if neither side is the pivot
};

// Only options.from, to, config and settings count. InvalidArgument as in
// Mapping::Map.
absl::StatusOr<ShownMapping> ShowMapping(const Mapping& mapping,
                                         const MapOptions& options);

std::string RenderMapping(const ShownMapping& shown);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_MAPS_RULES_H_
