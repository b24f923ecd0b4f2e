// SPDX-License-Identifier: Apache-2.0
// Compares the ranks' load targets with the stored entries, before anything is
// read. For the thread that trains.
#ifndef FSDP_CHECKPOINT_SOURCE_TARGET_CHECK_H_
#define FSDP_CHECKPOINT_SOURCE_TARGET_CHECK_H_

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/tensor/metadata.h"
#include "fsdp/checkpoint/source/checkpoint_source.h"

namespace fsdp {

// `ranks` are from DescribeTargets. Errors list every name that is missing
// (NotFound, unless `allow_partial`), or has another kind or shape or a type
// that cannot be converted (InvalidArgument). Returns the missing names.
absl::StatusOr<absl::flat_hash_set<std::string>> CheckTargets(
    const CheckpointSource& source, absl::Span<const dcp::Metadata> ranks,
    bool allow_partial);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_SOURCE_TARGET_CHECK_H_
