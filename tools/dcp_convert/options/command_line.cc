#include "tools/dcp_convert/options/command_line.h"

#include <optional>

namespace dcp::tools {

OpenOptions SourceOptionsOf(const CommandLine& line) {
  OpenOptions options;
  options.direct = line.direct;
  options.rank = line.rank;
  options.dialect = line.dialect;
  options.map = line.map_spec;
  return options;
}

OpenOptions SecondSourceOptionsOf(const CommandLine& line) {
  OpenOptions options = SourceOptionsOf(line);
  options.dialect.from = std::nullopt;
  options.map = nullptr;
  return options;
}

SelectionOptions SecondSelectionOf(const CommandLine& line) {
  SelectionOptions selection;
  if (line.verb != Verb::kDiff) return selection;
  selection.parts = line.selection.parts;
  selection.strip_wrappers = line.selection.strip_wrappers;
  // With renames the patterns are about A's old names, which B does not have.
  if (line.selection.renames.empty()) {
    selection.include = line.selection.include;
    selection.exclude = line.selection.exclude;
  }
  return selection;
}

bool WritesToStandardOutput(const CommandLine& line) {
  return (line.verb == Verb::kConvert || line.verb == Verb::kConsolidate ||
          line.verb == Verb::kDcpToTorch) &&
         line.paths.size() == 2 && line.paths[1] == "-";
}

}  // namespace dcp::tools
