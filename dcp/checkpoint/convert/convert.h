// SPDX-License-Identifier: Apache-2.0
// Convert: reads any checkpoint and writes it in any format and for any mesh,
// block by block within a memory budget. Resharding and consolidating are
// conversions with other options. The destination appears whole or not at all
// (see destination.h). Blocking; any thread.
#ifndef DCP_CHECKPOINT_CONVERT_CONVERT_H_
#define DCP_CHECKPOINT_CONVERT_CONVERT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/error_side.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/destination/destination_path.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Only plans; writes nothing. Errors are those of ConvertCheckpoint that need
// no payload to detect.
absl::StatusOr<ConvertPlan> PlanConvert(FileSystem& fs, absl::string_view src,
                                        const DestinationPath& dst,
                                        ConvertOptions options);

// AlreadyExists when `dst` exists and overwrite is off. FailedPrecondition when
// overwriting would destroy files that do not belong to a checkpoint, when a
// safetensors file cannot hold some values of the source (the error names
// them), when the source cannot give back all that it has
// (ConvertOptions::allow_losses), or when a strict cast meets a value beyond
// the range. DataLoss when the source contradicts the recorded CRCs or digests.
// ResourceExhausted when the disk cannot hold all files together, or when the
// memory is too small. Cancelled after a stop. Otherwise the errors of
// Checkpoint::Open. StatusSide (dcp/base/error_side.h) tells whether the source
// or the destination failed.
absl::StatusOr<ConvertPlan> ConvertCheckpoint(FileSystem& fs,
                                              absl::string_view src,
                                              const DestinationPath& dst,
                                              ConvertOptions options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERT_H_
