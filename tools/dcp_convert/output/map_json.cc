// SPDX-License-Identifier: Apache-2.0
// Converts mappings and trials to JSON.
// Tested by tests/tools/dcp_convert/output/json_output_test.cc.
#include "tools/dcp_convert/output/map_json.h"

namespace dcp::tools {

absl::string_view RuleClassName(RuleClass rule_class) {
  switch (rule_class) {
    case RuleClass::kBox:
      return "box";
    case RuleClass::kStrided:
      return "strided";
    case RuleClass::kArithmetic:
      return "arithmetic";
  }
  return "";
}

Json PlannedMapJson(const PlannedMap& map) {
  Json json{{"name", JsonText(map.name)}, {"from", map.from}, {"to", map.to}};
  json["digest"] = map.digest;
  Json& config = json["config"] = Json::object();
  for (const auto& [key, number] : map.config) config[key] = number;
  Json& rules = json["rules"] = Json::array();
  for (const PlannedRule& rule : map.rules) {
    Json& row = rules.emplace_back(
        Json{{"line", rule.line},
             {"rule", JsonText(rule.text)},
             {"shapes", rule.shapes},
             {"num_instances", rule.num_instances},
             {"num_sources", rule.num_sources},
             {"num_destinations", rule.num_destinations},
             {"num_bytes", rule.num_bytes},
             {"class", JsonText(RuleClassName(rule.rule_class))},
             {"read_ratio", nullptr}});
    if (rule.read_ratio.has_value()) row["read_ratio"] = *rule.read_ratio;
  }
  json["missing"] = map.missing;
  json["dropped"] = map.dropped;
  json["copied"] = map.copied;
  return json;
}

std::string MapsJson(absl::Span<const MapRow> maps) {
  Json json = JsonHeader("maps");
  Json& list = json["maps"] = Json::array();
  for (const MapRow& map : maps) {
    Json& row = list.emplace_back(Json{{"name", JsonText(map.name)},
                                       {"sides", map.sides},
                                       {"model_types", map.model_types},
                                       {"num_rules", map.num_rules}});
    if (!map.text.empty()) row["text"] = map.text;
  }
  return DumpJson(json);
}

std::string MapRulesJson(const ShownMapping& shown) {
  Json json = JsonHeader("maps");
  json["name"] = JsonText(shown.name);
  json["sizes"] = shown.sizes;
  Json& steps = json["steps"] = Json::array();
  const auto terms = [](const std::vector<ShownRule::Term>& shown_terms) {
    Json list = Json::array();
    for (const ShownRule::Term& term : shown_terms) {
      list.push_back(Json{{"name", term.name}, {"axes", term.axes}});
    }
    return list;
  };
  for (const ShownRules& shown_step : shown.steps) {
    Json& step = steps.emplace_back(
        Json{{"from", shown_step.from}, {"to", shown_step.to}});
    Json& rules = step["rules"] = Json::array();
    for (const ShownRule& rule : shown_step.rules) {
      rules.push_back(Json{{"line", rule.line},
                           {"from", terms(rule.from)},
                           {"to", terms(rule.to)},
                           {"notes", rule.notes}});
    }
    step["idle"] = shown_step.idle;
  }
  return DumpJson(json);
}

std::string MapTrialJson(absl::string_view name, bool ok,
                         absl::Span<const TriedPair> pairs,
                         absl::Span<const std::string> warnings) {
  Json json = JsonHeader("maps");
  json["name"] = JsonText(name);
  json["ok"] = ok;
  json["warnings"] = WarningsJson(warnings);
  Json& list = json["conversions"] = Json::array();
  for (const TriedPair& pair : pairs) {
    list.push_back(Json{
        {"from", pair.from},
        {"to", pair.to},
        {"num_models", pair.num_models},
        {"num_tensors", pair.num_tensors},
        {"num_made", pair.num_made},
        {"result", pair.result == TriedPair::Result::kSame     ? "same"
                   : pair.result == TriedPair::Result::kFailed ? "failed"
                                                               : "left_out"},
        {"why", JsonText(pair.why)}});
  }
  return DumpJson(json);
}

}  // namespace dcp::tools
