// SPDX-License-Identifier: Apache-2.0
// The options --map, --map-file and those that belong to them: their values,
// and the mapping that they describe.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_MAP_OPTIONS_H_
#define TOOLS_DCP_CONVERT_OPTIONS_MAP_OPTIONS_H_

#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"
#include "dcp/mapping/application/mapping.h"
#include "tools/dcp_convert/options/command_line.h"

namespace dcp::tools {

// Each stores an option's value, or returns the problem with it.
absl::Status AddMapSetting(absl::string_view value, CommandLine& line);
absl::Status AddMapPrefix(absl::string_view value, CommandLine& line);
absl::Status AddAllowMissing(absl::string_view value, CommandLine& line);
absl::Status SetUnmatched(absl::string_view value, CommandLine& line);

// A mapping's name: FAMILY-SIDE-to-SIDE.
struct MapName {
  std::string family;
  std::string from;
  std::string to;
};
// InvalidArgument for other texts.
absl::StatusOr<MapName> ParseMapName(absl::string_view text);

// The mapping in a rule file. InvalidArgument names the place in the file;
// other errors come from reading it. Blocking.
absl::StatusOr<Mapping> ReadMapping(FileSystem& fs, const std::string& path);

// The model's config.json: the line's, or one in or next to `source`; empty if
// there is none. Blocking.
absl::StatusOr<std::string> ReadModelConfig(FileSystem& fs,
                                            const CommandLine& line,
                                            const std::string& source);

// If the line asks for a mapping, reads the rule file and config.json into
// line.map.spec. Reads the source's names too if they tell the side.
// InvalidArgument names the option, or the place in the rule file. An error
// that is marked as the source's comes from opening it; other errors come from
// reading files. Blocking.
absl::Status LoadMap(FileSystem& fs, CommandLine& line,
                     const std::stop_token& stop);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_MAP_OPTIONS_H_
