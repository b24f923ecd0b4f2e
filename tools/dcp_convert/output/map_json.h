// SPDX-License-Identifier: Apache-2.0
// JSON for mappings: the objects that `maps` prints, and "map" in a
// conversion's object. As in json_output.h. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_MAP_JSON_H_
#define TOOLS_DCP_CONVERT_OUTPUT_MAP_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "tools/dcp_convert/output/json_object.h"
#include "tools/dcp_convert/output/maps_rules.h"
#include "tools/dcp_convert/output/maps_trial.h"

namespace dcp::tools {

// A mapping's effect in a conversion.
Json PlannedMapJson(const PlannedMap& map);

// "box", "strided" or "arithmetic"; for people too.
absl::string_view RuleClassName(RuleClass rule_class);

// A mapping family, or a rule file.
struct MapRow {
  std::string name;
  std::vector<std::string> sides;
  std::vector<std::string> model_types;
  uint64_t num_rules = 0;
  std::string text = {};  // empty: not asked for
};
std::string MapsJson(absl::Span<const MapRow> maps);

// The rules between a mapping's two sides.
std::string MapRulesJson(const ShownMapping& shown);

// Conversions that were tried. `ok` is their common result, and `warnings`
// names parts that the checkpoint used for it lacks.
std::string MapTrialJson(absl::string_view name, bool ok,
                         absl::Span<const TriedPair> pairs,
                         absl::Span<const std::string> warnings);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_MAP_JSON_H_
