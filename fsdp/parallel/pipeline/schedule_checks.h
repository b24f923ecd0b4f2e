// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of a schedule on all ranks together. schedules.cc calls
// these on the thread that trains.
#ifndef FSDP_PARALLEL_PIPELINE_SCHEDULE_CHECKS_H_
#define FSDP_PARALLEL_PIPELINE_SCHEDULE_CHECKS_H_

#include <cstdint>
#include <vector>

#include "fsdp/parallel/pipeline/order/pipeline_order.h"
#include "fsdp/parallel/pipeline/pipeline_stage.h"

namespace fsdp {

// The order of `kind`, or `order` for kCustom, after the checks that
// PipelineSchedule's constructor describes. The ranks of the stages' mesh tell
// each other their errors through the job's store, without a collective: all
// throw c10::ValueError if one has an error. A rank waits for the others at
// most for the default group's timeout.
PipelineOrder CheckedOrder(ScheduleKind kind,
                           const std::vector<PipelineStage>& stages,
                           int64_t num_microbatches, bool has_loss,
                           PipelineOrder order);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_SCHEDULE_CHECKS_H_
