// SPDX-License-Identifier: Apache-2.0
// ApplyRules: the rules of a mapping between the pivot and another side,
// applied to the tensors of a checkpoint. For mapping.cc; pure; any thread.
#ifndef DCP_MAPPING_APPLICATION_RULE_APPLICATION_H_
#define DCP_MAPPING_APPLICATION_RULE_APPLICATION_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/mapping/application/map_options.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/mapping/language/mapping_file.h"

namespace dcp {

// One of `options.from` and `options.to` is the pivot, and both are sides.
// Errors are those of Mapping::Map.
absl::StatusOr<MappedTensors> ApplyRules(
    const MappingFile& file, absl::Span<const MappingTensor> sources,
    const MapOptions& options);

}  // namespace dcp

#endif  // DCP_MAPPING_APPLICATION_RULE_APPLICATION_H_
