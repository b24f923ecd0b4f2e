// SPDX-License-Identifier: Apache-2.0
// Puts the rules into a table.
// Tested by tests/tools/dcp_convert/options/map_options_test.cc.
#include "tools/dcp_convert/output/map_plan_text.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/dcp_convert/output/map_json.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

constexpr size_t kMaxNamesInPlan = 8;

std::string RenderRules(const std::vector<PlannedRule>& rules) {
  // Rules are last, because they may be too long for a column.
  Table table({{"LINE", Align::kRight},
               {"TENSORS"},
               {"SIZE", Align::kRight},
               {"CLASS"},
               {"READS", Align::kRight},
               {"SHAPES"},
               {"RULE"}});
  for (const PlannedRule& rule : rules) {
    table.AddRow({absl::StrCat(rule.line),
                  absl::StrCat(FormatCount(rule.num_sources), " -> ",
                               FormatCount(rule.num_destinations)),
                  FormatBytes(rule.num_bytes),
                  std::string(RuleClassName(rule.rule_class)),
                  rule.read_ratio.has_value()
                      ? absl::StrFormat("%.2f", *rule.read_ratio)
                      : "",
                  rule.shapes, rule.text});
  }
  return table.Render();
}

}  // namespace

std::string RenderMapPlan(const PlannedMap& map) {
  std::string text;
  if (!map.rules.empty()) {
    text =
        absl::StrCat("\n", Printable(map.name), ", ", Printable(map.from),
                     " to ", Printable(map.to), "\n", RenderRules(map.rules));
  }
  if (!map.config.empty()) {
    absl::StrAppend(
        &text, "from config.json: ",
        Printable(absl::StrJoin(map.config, ", ", absl::PairFormatter(" = "))),
        "\n");
  }
  if (!map.missing.empty()) {
    absl::StrAppend(&text, "missing, as allowed: ", FirstNames(map.missing),
                    "\n");
  }
  if (!map.dropped.empty()) {
    absl::StrAppend(&text, "tensors left out: ", FirstNames(map.dropped), "\n");
  }
  if (!map.copied.empty()) {
    absl::StrAppend(&text, "written twice, because they are tied: ",
                    FirstNames(map.copied), "\n");
  }
  return text;
}

std::string FirstNames(absl::Span<const std::string> names) {
  const size_t shown = std::min(names.size(), kMaxNamesInPlan);
  return absl::StrCat(Printable(absl::StrJoin(names.first(shown), ", ")),
                      shown < names.size()
                          ? absl::StrCat(" and ", names.size() - shown, " more")
                          : "");
}

}  // namespace dcp::tools
