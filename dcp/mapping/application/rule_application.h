// SPDX-License-Identifier: Apache-2.0
// ApplyRules: applies a mapping's rules between the pivot and another side to a
// checkpoint's tensors. For mapping.cc; pure; any thread.
#ifndef DCP_MAPPING_APPLICATION_RULE_APPLICATION_H_
#define DCP_MAPPING_APPLICATION_RULE_APPLICATION_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/mapping/application/map_options.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/mapping/language/mapping_file.h"

namespace dcp {

// Both `options.from` and `options.to` are sides, and one is the pivot. Errors
// are those of Mapping::Map.
absl::StatusOr<MappedTensors> ApplyRules(
    const MappingFile& file, absl::Span<const MappingTensor> sources,
    const MapOptions& options);

}  // namespace dcp

#endif  // DCP_MAPPING_APPLICATION_RULE_APPLICATION_H_
