// The options --map, --map-file and those that belong to them: their values,
// and the mapping that they mean.
#ifndef TOOLS_DCP_CONVERT_MAP_OPTIONS_H_
#define TOOLS_DCP_CONVERT_MAP_OPTIONS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"
#include "tools/dcp_convert/command_line.h"

namespace dcp::tools {

// Each stores the value of its option, or returns what is wrong with it.
absl::Status AddMapSetting(absl::string_view value, CommandLine& line);
absl::Status AddMapPrefix(absl::string_view value, CommandLine& line);
absl::Status SetUnmatched(absl::string_view value, CommandLine& line);

// Whether the line asks for a mapping.
inline bool IsMapped(const CommandLine& line) {
  return !line.map.empty() || !line.map_file.empty();
}

// Reads the rule file and config.json, if the line asks for a mapping, into
// line.map_spec. InvalidArgument names the option, or the place in the rule
// file; other errors are those of reading. Blocking.
absl::Status LoadMap(FileSystem& fs, CommandLine& line);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_MAP_OPTIONS_H_
