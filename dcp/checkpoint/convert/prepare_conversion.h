// SPDX-License-Identifier: Apache-2.0
// Prepares a conversion: opens, plans and locks, before any payload moves.
// Blocking; any thread.
#ifndef DCP_CHECKPOINT_CONVERT_PREPARE_CONVERSION_H_
#define DCP_CHECKPOINT_CONVERT_PREPARE_CONVERSION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/convert/conversion.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/destination_path.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Opens the source, locks the destination and plans everything. `before` has
// the files of the run that this one may resume, or is null. Errors as
// ConvertCheckpoint.
absl::StatusOr<Conversion> PrepareConversion(FileSystem& fs,
                                             absl::string_view src,
                                             const DestinationPath& dst,
                                             const ConvertOptions& options,
                                             const OwnFiles* before);

// The same for a worker that shares the conversion with others: without a
// destination, a lock and a check of the source; own.id is the PlanId.
absl::StatusOr<Conversion> PrepareShare(FileSystem& fs, absl::string_view src,
                                        const DestinationPath& dst,
                                        const ConvertOptions& options,
                                        uint64_t piece_bytes);

// The plan of PrepareConversion, with the bytes that would really be read;
// changes nothing.
absl::StatusOr<ConvertPlan> PlanConversion(FileSystem& fs,
                                           absl::string_view src,
                                           const DestinationPath& dst,
                                           const ConvertOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_PREPARE_CONVERSION_H_
