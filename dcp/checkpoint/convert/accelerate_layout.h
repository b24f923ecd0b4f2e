// SPDX-License-Identifier: Apache-2.0
// AccelerateLayout: the layout from which accelerate and the Trainer resume
// under FSDP, with the model in pytorch_model_fsdp_0/ and the optimizer in
// optimizer_0/, each a DCP checkpoint. Pure; any thread. Source:
// accelerate/utils/fsdp_utils.py (1.15.0).
#ifndef DCP_CHECKPOINT_CONVERT_ACCELERATE_LAYOUT_H_
#define DCP_CHECKPOINT_CONVERT_ACCELERATE_LAYOUT_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/checkpoint/output/output.h"

namespace dcp {

// Gives the entries the names that accelerate uses, model.NAME and
// optimizer.state.NAME.exp_avg, whatever the parts are called in the source.
// Entries that belong to neither model nor optimizer go to plan.dropped.
// InvalidArgument without a model.
absl::Status NameForAccelerate(const ConvertOptions& options,
                               std::vector<OutputEntry>& entries,
                               ConvertPlan& plan);

// The files in both folders. `ranks` are the chunks of all entries, which have
// such names. Each folder has a digest for the index; items have their CRC-32.
absl::StatusOr<Output> BuildAccelerateOutput(std::vector<OutputEntry> entries,
                                             SourceFiles& files,
                                             absl::Span<const DcpRank> ranks,
                                             const DcpOutputOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_ACCELERATE_LAYOUT_H_
