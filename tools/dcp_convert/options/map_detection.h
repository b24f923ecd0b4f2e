// SPDX-License-Identifier: Apache-2.0
// How a checkpoint is spelled: which side of which mapping knows every tensor
// name.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_MAP_DETECTION_H_
#define TOOLS_DCP_CONVERT_OPTIONS_MAP_DETECTION_H_

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/io/file_system.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "tools/dcp_convert/options/command_line.h"

namespace dcp::tools {

// A mapping, and the side that is spelled like a source.
struct Spelling {
  Mapping mapping;
  std::string side;
};

// A checkpoint's tensors, without wrappers in their names, and warnings about
// parts that it lacks.
struct StoredShapes {
  std::vector<MappingTensor> tensors;
  std::vector<std::string> warnings;
};

// Opens the checkpoint at `path` as the line says, and reads nothing more. The
// errors are Checkpoint::Open's, marked as the source's. Blocking.
absl::StatusOr<StoredShapes> ReadShapes(FileSystem& fs, const std::string& path,
                                        const CommandLine& line,
                                        std::stop_token stop);

// The only side in `mappings` that knows all names. With line.map.from_side,
// only sides with that name count. InvalidArgument, with the candidates, if
// there are several; DataLoss, marked as the source's, with names that no side
// knows, if there is none.
absl::StatusOr<Spelling> FindSpelling(absl::Span<const Mapping> mappings,
                                      absl::Span<const MappingTensor> tensors,
                                      const std::string& config,
                                      const CommandLine& line);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_MAP_DETECTION_H_
