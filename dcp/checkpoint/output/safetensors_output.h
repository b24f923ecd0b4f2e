// SPDX-License-Identifier: Apache-2.0
// Builds safetensors: one file, or a directory with shards and an index. Pure.
#ifndef DCP_CHECKPOINT_OUTPUT_SAFETENSORS_OUTPUT_H_
#define DCP_CHECKPOINT_OUTPUT_SAFETENSORS_OUTPUT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/output/output.h"

namespace dcp {

// The entries of __metadata__, in this order.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

// `metadata`, with "format": "pt" in front if it has no format: transformers
// refuses a file without one.
SafetensorsMetadata WithFormat(SafetensorsMetadata metadata);

// FailedPrecondition that names the first of `names`, values that are not
// tensors, and ends with `remedy`, which tells the user how to proceed.
absl::Status NonTensorsError(absl::Span<const std::string> names,
                             absl::string_view remedy);

// One file named `file_name`; the header has `metadata` unchanged.
// `with_digests` puts the tensors' digests into the header, which is then
// complete only after everything else is written.
absl::StatusOr<Output> BuildSafetensorsFile(
    absl::Span<const OutputEntry> entries, SourceFiles& files,
    absl::string_view file_name,
    const SafetensorsMetadata& metadata = WithFormat({}),
    bool with_digests = true);

// STEM.safetensors, or STEM-00001-of-0000N.safetensors and an index when the
// tensors exceed `max_shard_bytes` (0: no limit); a tensor larger than that has
// a file to itself. Each header has WithFormat(metadata).
absl::StatusOr<Output> BuildSafetensorsDirectory(
    absl::Span<const OutputEntry> entries, SourceFiles& files,
    uint64_t max_shard_bytes, const SafetensorsMetadata& metadata = {},
    absl::string_view stem = "model");

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_SAFETENSORS_OUTPUT_H_
