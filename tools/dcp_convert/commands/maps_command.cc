// SPDX-License-Identifier: Apache-2.0
// The verb maps: lists, shows and tries mappings.
// Tested by tests/tools/dcp_convert/commands/maps_command_test.cc.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/maps/builtin_mappings.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/options/map_detection.h"
#include "tools/dcp_convert/options/map_options.h"
#include "tools/dcp_convert/output/map_json.h"
#include "tools/dcp_convert/output/maps_rules.h"
#include "tools/dcp_convert/output/maps_trial.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

MapRow MakeMapRow(const Mapping& mapping) {
  return {.name = mapping.name(),
          .sides = mapping.sides(),
          .model_types = mapping.model_types(),
          .num_rules = mapping.file().rules.size()};
}

absl::StatusOr<std::string> List(bool json) {
  std::vector<MapRow> rows;
  for (const std::string& family : BuiltinMappings()) {
    DCP_ASSIGN_OR_RETURN(const Mapping mapping, BuiltinMapping(family));
    rows.push_back(MakeMapRow(mapping));
  }
  if (json) return MapsJson(rows);
  Table table({{"FAMILY"}, {"MODEL TYPES"}, {"SIDES"}});
  for (const MapRow& row : rows) {
    table.AddRow({row.name, absl::StrJoin(row.model_types, ", "),
                  absl::StrJoin(row.sides, ", ")});
  }
  return table.Render();
}

bool IsFamily(const std::string& word) {
  const std::vector<std::string> families = BuiltinMappings();
  return std::find(families.begin(), families.end(), word) != families.end();
}

// A family's mapping, or a rule file's.
absl::StatusOr<Mapping> FindMapping(FileSystem& fs, const std::string& word) {
  if (IsFamily(word)) return BuiltinMapping(word);
  absl::StatusOr<Mapping> mapping = ReadMapping(fs, word);
  if (!absl::IsNotFound(mapping.status())) return mapping;
  return absl::NotFoundError(absl::StrCat(
      "'", word, "' is neither a rule file nor a family; there are ",
      absl::StrJoin(BuiltinMappings(), ", ")));
}

// The rule file as it is.
absl::StatusOr<std::string> ShowText(const Context& context,
                                     const std::string& word) {
  std::string text;
  if (IsFamily(word)) {
    DCP_ASSIGN_OR_RETURN(const absl::string_view builtin,
                         BuiltinMappingText(word));
    text = std::string(builtin);
  } else {
    // The error says where the rule file is wrong.
    DCP_RETURN_IF_ERROR(FindMapping(context.fs, word).status());
    DCP_ASSIGN_OR_RETURN(text, ReadFile(context.fs, word, kMaxMappingBytes,
                                        /*follow_symlinks=*/true));
  }
  if (!context.line.json) return text;
  DCP_ASSIGN_OR_RETURN(const Mapping mapping, FindMapping(context.fs, word));
  MapRow row = MakeMapRow(mapping);
  row.text = std::move(text);
  return MapsJson({row});
}

absl::StatusOr<std::string> Show(const Context& context) {
  const CommandLine& line = context.line;
  MapOptions options{.from = line.map.from_side,
                     .to = line.map.to_side,
                     .settings = line.map.settings};
  std::string word = line.paths[1];
  // The word may also have --map's form.
  if (const absl::StatusOr<MapName> name = ParseMapName(word);
      name.ok() && IsFamily(name->family)) {
    word = name->family;
    options.from = name->from;
    options.to = name->to;
  }
  if (options.from.empty() && options.to.empty() && line.map.config.empty()) {
    return ShowText(context, word);
  }
  DCP_ASSIGN_OR_RETURN(const Mapping mapping, FindMapping(context.fs, word));
  if (options.from.empty() || options.to.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("give both --from-side and --to-side; ", mapping.name(),
                     " has the sides ", absl::StrJoin(mapping.sides(), ", ")));
  }
  DCP_ASSIGN_OR_RETURN(options.config,
                       ReadModelConfig(context.fs, line, line.maps.shapes));
  DCP_ASSIGN_OR_RETURN(const ShownMapping shown, ShowMapping(mapping, options));
  return line.json ? MapRulesJson(shown) : RenderMapping(shown);
}

// The conversions that maps check and maps test try. `warnings` gets the losses
// in --shapes' checkpoint.
absl::StatusOr<std::vector<TriedPair>> Try(const Context& context,
                                           const Mapping& mapping,
                                           bool with_bits,
                                           std::vector<std::string>& warnings) {
  const CommandLine& line = context.line;
  TrialRequest request{.with_bits = with_bits,
                       .from = line.map.from_side,
                       .to = line.map.to_side,
                       .settings = line.map.settings};
  for (const std::string& side : {request.from, request.to}) {
    if (side.empty() || mapping.file().FindSide(side) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the mapping ", mapping.name(), " has no side '", side,
                     "'; it has ", absl::StrJoin(mapping.sides(), ", ")));
  }
  DCP_ASSIGN_OR_RETURN(request.config,
                       ReadModelConfig(context.fs, line, line.maps.shapes));
  if (line.maps.shapes.empty())
    return TryInvented(mapping, request, context.stop);
  DCP_ASSIGN_OR_RETURN(
      StoredShapes shapes,
      ReadShapes(context.fs, line.maps.shapes, line, context.stop));
  warnings = std::move(shapes.warnings);
  CommandLine any_side = line;
  any_side.map.from_side.clear();
  DCP_ASSIGN_OR_RETURN(
      const Spelling spelling,
      FindSpelling({mapping}, shapes.tensors, request.config, any_side));
  return TryModel(mapping, spelling.side, shapes.tensors, request,
                  context.stop);
}

absl::StatusOr<ExitCode> CheckOrTest(const Context& context, bool with_bits) {
  DCP_ASSIGN_OR_RETURN(const Mapping mapping,
                       FindMapping(context.fs, context.line.paths[1]));
  std::vector<std::string> warnings;
  DCP_ASSIGN_OR_RETURN(const std::vector<TriedPair> pairs,
                       Try(context, mapping, with_bits, warnings));
  context.console.err << RenderWarnings(context.line.maps.shapes, warnings);
  const bool is_proven = IsProven(pairs);
  if (context.line.json) {
    context.console.out << MapTrialJson(mapping.name(), is_proven, pairs,
                                        warnings);
  } else {
    const MapRow row = MakeMapRow(mapping);
    context.console.out << absl::StrCat(
        Printable(row.name), ": ", FormatPlural(row.num_rules, "rule"),
        " between ", Printable(absl::StrJoin(row.sides, ", ")), "\n\n",
        RenderTrial(row.name, with_bits, pairs));
  }
  return is_proven ? kExitDone : kExitFound;
}

}  // namespace

absl::StatusOr<ExitCode> RunMaps(const Context& context) {
  const std::string& action = context.line.paths[0];
  if (action == "check" || action == "test") {
    return CheckOrTest(context, /*with_bits=*/action == "test");
  }
  DCP_ASSIGN_OR_RETURN(const std::string text, action == "list"
                                                   ? List(context.line.json)
                                                   : Show(context));
  context.console.out << text;
  return kExitDone;
}

}  // namespace dcp::tools
