// SPDX-License-Identifier: Apache-2.0
// How a conversion's payload moves, in one process or in a worker, and whether
// it may then become a checkpoint. Used by the conversion's thread.
#ifndef DCP_CHECKPOINT_CONVERT_MOVED_PAYLOAD_H_
#define DCP_CHECKPOINT_CONVERT_MOVED_PAYLOAD_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/conversion.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/io/pipeline.h"

namespace dcp {

// Adds the counts of a file or piece that an earlier run or another worker has
// written to conversion.num_beyond. False, and nothing is added, if the output
// lacks one of the payloads.
bool AddBeyond(const WrittenFile& written, Conversion& conversion);

// The tensors for which conversion.num_beyond counts elements, by name.
std::vector<CastLoss> CastLosses(const Conversion& conversion);

// The options for TransferImages.
ImageTransferOptions TransferOptions(const ConvertOptions& options,
                                     Conversion& conversion);

// Checks the payload that has moved, unless the transfer has failed with
// `moved`: the casts, the checksums of the source (if `check` is not null, it
// has seen the reads), and that nobody wrote to the source. Adds the results to
// the plan. Blocking.
absl::Status CheckMoved(const absl::Status& moved,
                        const ConvertOptions& options, SourceCheck* check,
                        SourceCheck::Missing missing, TransferStats& stats,
                        Conversion& conversion);

// The error of a strict cast; `losses` is not empty.
absl::Status StrictCastError(absl::Span<const CastLoss> losses);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_MOVED_PAYLOAD_H_
