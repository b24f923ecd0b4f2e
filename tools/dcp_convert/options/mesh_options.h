// SPDX-License-Identifier: Apache-2.0
// The options --mesh, --place and --tp-plan: their values, and how they fit
// together once all are known. A placement may name axes and a mesh that come
// later on the command line.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_MESH_OPTIONS_H_
#define TOOLS_DCP_CONVERT_OPTIONS_MESH_OPTIONS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"
#include "tools/dcp_convert/options/command_line.h"

namespace dcp::tools {

// Each stores an option's value, or returns the problem with it. "dp=2,tp=2" is
// the first mesh, "experts:efsdp=2,ep=2" another one.
absl::Status AddMesh(absl::string_view value, CommandLine& line);
// "GLOB=S(0),R", "GLOB=tp:S(0),dp:S(0)", "GLOB@MESH=S(0),R".
absl::Status AddPlacement(absl::string_view value, CommandLine& line);

// Fills in line.write.spec.placements. InvalidArgument names the option. Pure;
// any thread.
absl::Status ResolveMeshOptions(CommandLine& line);

// Reads --tp-plan's file, if there is one, into
// line.write.spec.tensor_parallel. An InvalidArgument has a line for each
// problem in the file. Blocking.
absl::Status LoadTpPlan(FileSystem& fs, CommandLine& line);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_MESH_OPTIONS_H_
