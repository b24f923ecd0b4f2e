// SPDX-License-Identifier: Apache-2.0
// Orders as text and as a picture. Pure; any thread.
#ifndef FSDP_PARALLEL_PIPELINE_ORDER_ORDER_TEXT_H_
#define FSDP_PARALLEL_PIPELINE_ORDER_ORDER_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "fsdp/parallel/pipeline/order/pipeline_action.h"
#include "fsdp/parallel/pipeline/order/timeline.h"

namespace fsdp {

// The CSV that PyTorch's schedules write and read with format="compute_only": a
// line for each rank, a field for each slot. Parsing throws c10::ValueError,
// which names the line, for other text and for orders that StageRanks refuses.
std::string FormatOrderCsv(const PipelineOrder& order);
PipelineOrder ParseOrderCsv(absl::string_view csv);

// A table to read: a line for each slot, a column for each rank.
//
//           Rank 0 Rank 1
//   Step 0: 0F0
//   Step 1: 0F1    1F0
std::string FormatOrderTable(const PipelineOrder& order);

// An SVG picture: a row for each rank, a box for each action over the time that
// it takes, with the microbatch. The colour says which kind of action it is,
// and the shade which of the rank's stages.
std::string FormatTimelineSvg(const Timeline& timeline);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_ORDER_ORDER_TEXT_H_
