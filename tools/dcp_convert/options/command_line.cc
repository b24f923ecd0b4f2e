// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/command_line.h"

#include <optional>

#include "absl/strings/string_view.h"
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
      return line.write.spec.to.has_value() ? line.write.spec.to
                                            : line.write.dst.format();
    default:
      return line.write.spec.to;
  }
}

// The folder with the config, tokenizer and generation files; empty: the
// source.
std::string AssetsFolder(const CommandLine& line) {
  if (!line.write.spec.assets.empty()) return line.write.spec.assets;
  return BaseName(line.map.config) == kConfigName
             ? ParentDirectory(line.map.config)
             : "";
}

}  // namespace

OpenOptions SourceOpenOptions(const CommandLine& line) {
  OpenOptions options;
  options.direct = line.source.direct;
  options.rank = line.source.rank;
  options.dialect = line.source.dialect;
  options.map = line.map.spec;
  return options;
}

OpenOptions SecondSourceOpenOptions(const CommandLine& line) {
  OpenOptions options = SourceOpenOptions(line);
  options.dialect.from = std::nullopt;
  options.map = nullptr;
  return options;
}

SelectionOptions SecondSelection(const CommandLine& line) {
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
  ConvertSpec spec = line.write.spec;
  spec.open = SourceOpenOptions(line);
  spec.to = OutputFormat(line);
  spec.consolidate = line.verb == Verb::kConsolidate;
  spec.selection = line.selection;
  spec.assets = AssetsFolder(line);
  return spec;
}

bool WritesToStandardOutput(const CommandLine& line) {
  return (line.verb == Verb::kConvert || line.verb == Verb::kConsolidate ||
          line.verb == Verb::kDcpToTorch) &&
         line.write.dst.text() == "-";
}

}  // namespace dcp::tools
