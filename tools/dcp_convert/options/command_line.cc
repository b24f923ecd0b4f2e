// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/command_line.h"

#include <optional>

#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/io/file_system.h"

namespace dcp::tools {
namespace {

constexpr absl::string_view kConfigName = "config.json";

// The destination format if the verb decides it.
std::optional<Format> OutputFormat(const CommandLine& line) {
  switch (*line.verb) {
    case Verb::kReshard:
    case Verb::kTorchToDcp:
      return Format::kDcp;
    case Verb::kDcpToTorch:
      return Format::kTorch;
    case Verb::kConsolidate:
      return line.spec.to.has_value() ? line.spec.to
                                      : FormatFromSuffix(line.paths[1]);
    default:
      return line.spec.to;
  }
}

// The folder with the config, tokenizer and generation files; empty: the
// source.
std::string CompanionOptions(const CommandLine& line) {
  if (!line.assets.empty()) return line.assets;
  return BaseName(line.config) == kConfigName ? ParentDirectory(line.config)
                                              : "";
}

}  // namespace

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
  // With renames, the patterns match A's old names, which B does not have.
  if (line.selection.renames.empty()) {
    selection.include = line.selection.include;
    selection.exclude = line.selection.exclude;
  }
  return selection;
}

ConvertSpec MakeConvertSpec(const CommandLine& line) {
  ConvertSpec spec = line.spec;
  spec.open = SourceOptionsOf(line);
  spec.to = OutputFormat(line);
  spec.consolidate = line.verb == Verb::kConsolidate;
  spec.selection = line.selection;
  spec.companions_from = CompanionOptions(line);
  return spec;
}

bool WritesToStandardOutput(const CommandLine& line) {
  return (line.verb == Verb::kConvert || line.verb == Verb::kConsolidate ||
          line.verb == Verb::kDcpToTorch) &&
         line.paths.size() == 2 && line.paths[1] == "-";
}

}  // namespace dcp::tools
