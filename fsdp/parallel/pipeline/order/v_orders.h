// SPDX-License-Identifier: Apache-2.0
// The orders of schedules with two stages on each rank in the form of a V: rank
// r of n has the stages r and 2n - 1 - r. For pipeline_order.cc, which has
// checked the shape. Pure; any thread.
#ifndef FSDP_PARALLEL_PIPELINE_ORDER_V_ORDERS_H_
#define FSDP_PARALLEL_PIPELINE_ORDER_V_ORDERS_H_

#include <cstdint>
#include <vector>

#include "fsdp/parallel/pipeline/order/pipeline_action.h"

namespace fsdp {

// ZB-V (https://arxiv.org/abs/2401.10241, section 6): a backward is split, and
// no rank waits if forward and both parts of backward take equally long. The
// order for fewer than 2n - 1 microbatches is that for 2n - 1, with idle slots
// in place of the others.
std::vector<PipelineSlot> ZBVSlots(const PipelineShape& shape, int64_t rank);

// DualPipeV (https://github.com/deepseek-ai/DualPipe): pairs of one stage's
// forward and the other stage's backward, and split backwards where a rank
// would wait.
std::vector<PipelineSlot> DualPipeVSlots(const PipelineShape& shape,
                                         int64_t rank);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_ORDER_V_ORDERS_H_
