// SPDX-License-Identifier: Apache-2.0
// The options --decode, --adapter and --average, which compute with the
// source's elements before anything else happens, and --encode, which computes
// with the result's.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_LENS_OPTIONS_H_
#define TOOLS_DCP_CONVERT_OPTIONS_LENS_OPTIONS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/io/file_system.h"
#include "tools/dcp_convert/options/command_line.h"

namespace dcp::tools {

absl::Status SetDecode(absl::string_view value, CommandLine& line);
absl::Status SetEncode(absl::string_view value, CommandLine& line);
absl::Status AddEncodeExclude(absl::string_view value, CommandLine& line);
absl::Status SetAdapter(absl::string_view value, CommandLine& line);
absl::Status AddAverage(absl::string_view value, CommandLine& line);
absl::Status SetSourceWeight(absl::string_view value, CommandLine& line);
absl::Status SetWindow(absl::string_view value, CommandLine& line);

// A value of --average. The text after its last "=" is the weight if it is a
// number as a whole and nothing has `value` as its path; otherwise "=" belongs
// to the path, as in Lightning's epoch=1-step=100.ckpt. InvalidArgument, which
// says how to write it, if both `value` and the part before "=" exist.
absl::StatusOr<MeanTerm> ParseAverage(FileSystem& fs, absl::string_view value);

// Whether the line asks for any of this.
inline bool HasLens(const CommandLine& line) {
  return !line.map.decode.empty() || !line.map.adapter.empty() ||
         !line.map.average.empty() || line.map.encode;
}

// InvalidArgument for options that exclude each other.
absl::Status CheckLenses(const CommandLine& line);

// A mapping that leaves every name as it is, for a line without another.
absl::StatusOr<MapSpec> SpecWithoutRules(const CommandLine& line);

// Puts these options, except for --decode, into `spec`. Looks which of the
// checkpoints for a mean exist; see ParseAverage.
absl::Status AddLenses(FileSystem& fs, const CommandLine& line, MapSpec& spec);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_LENS_OPTIONS_H_
