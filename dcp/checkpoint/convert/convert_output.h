// SPDX-License-Identifier: Apache-2.0
// BuildConvertOutput: lays out the files that a conversion writes, in any
// format. Any thread.
#ifndef DCP_CHECKPOINT_CONVERT_CONVERT_OUTPUT_H_
#define DCP_CHECKPOINT_CONVERT_CONVERT_OUTPUT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/convert/convert_target.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/destination_path.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/companion_files.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/checkpoint/output/safetensors_output.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The input for an output. The references and pointers must outlive the output.
struct ConvertOutputParts {
  FileSystem& fs;
  Checkpoint& source;
  CompanionFiles& companions;  // for a safetensors directory
  // Chooses the names of DCP data files. Null for a stream, and for workers
  // that share a conversion: then the names follow from the save id.
  Destination* destination;
  ConvertTarget target;
  const DestinationPath& dst;
  std::string save_id;
  // Gets the keys that are left out of a copied config.json.
  std::vector<std::string>& dropped_config;
};

// The output that holds `entries`, which are located.
absl::StatusOr<Output> BuildConvertOutput(const ConvertOutputParts& parts,
                                          std::vector<OutputEntry> entries,
                                          const ConvertOptions& options);

// The output's __metadata__: the source's, then the requested values.
SafetensorsMetadata MetadataFor(const Checkpoint& source,
                                const ConvertOptions& options);

// The source's metadata keys that the output cannot hold. Every other format
// implies that it was written for PyTorch.
std::vector<std::string> DroppedMetadata(const Checkpoint& source, Format to,
                                         const ConvertOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERT_OUTPUT_H_
