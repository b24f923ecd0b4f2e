// Tested by tests/tools/dcp_convert/map_options_test.cc.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/mapping/mapping.h"
#include "dcp/mapping/mapping_limits.h"
#include "dcp/maps/builtin_mappings.h"
#include "tools/dcp_convert/commands.h"
#include "tools/dcp_convert/json_output.h"
#include "tools/dcp_convert/render.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

MapRow RowOf(const Mapping& mapping) {
  return {.name = mapping.name(),
          .sides = mapping.sides(),
          .model_types = mapping.model_types(),
          .num_rules = mapping.file().rules.size()};
}

absl::StatusOr<std::string> List(bool json) {
  std::vector<MapRow> rows;
  for (const std::string& family : BuiltinMappings()) {
    DCP_ASSIGN_OR_RETURN(const Mapping mapping, BuiltinMapping(family));
    rows.push_back(RowOf(mapping));
  }
  if (json) return MapsJson(rows);
  Table table({{"FAMILY"}, {"SIDES"}});
  for (const MapRow& row : rows) {
    table.AddRow({row.name, absl::StrJoin(row.sides, ", ")});
  }
  return table.Render();
}

absl::StatusOr<std::string> Show(const std::string& family, bool json) {
  DCP_ASSIGN_OR_RETURN(const absl::string_view text,
                       BuiltinMappingText(family));
  if (!json) return std::string(text);
  DCP_ASSIGN_OR_RETURN(const Mapping mapping, BuiltinMapping(family));
  MapRow row = RowOf(mapping);
  row.text = std::string(text);
  return MapsJson({row});
}

absl::StatusOr<std::string> Check(FileSystem& fs, const std::string& path,
                                  bool json) {
  DCP_ASSIGN_OR_RETURN(
      const std::string text,
      ReadFile(fs, path, kMaxMappingBytes, /*follow_symlinks=*/true));
  DCP_ASSIGN_OR_RETURN(const Mapping mapping, ParseMapping(text, path));
  const MapRow row = RowOf(mapping);
  if (json) return MapsJson({row});
  return absl::StrCat(Printable(row.name), ": ",
                      FormatPlural(row.num_rules, "rule"), " between ",
                      Printable(absl::StrJoin(row.sides, ", ")), "\n");
}

}  // namespace

absl::StatusOr<ExitCode> RunMaps(const Context& context) {
  const std::vector<std::string>& words = context.line.paths;
  const bool json = context.line.json;
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       words[0] == "list" ? List(json)
                       : words[0] == "show"
                           ? Show(words[1], json)
                           : Check(context.fs, words[1], json));
  context.console.out << text;
  return kExitDone;
}

}  // namespace dcp::tools
