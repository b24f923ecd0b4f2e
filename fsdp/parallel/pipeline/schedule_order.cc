// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/schedule_order.h"

#include "c10/util/Exception.h"

namespace fsdp {
namespace {

using Kind = PipelineAction::Kind;

std::vector<PipelineAction> GPipeOrder(int64_t num_microbatches) {
  std::vector<PipelineAction> order = ForwardOrder(num_microbatches);
  for (int64_t i = 0; i < num_microbatches; ++i) {
    order.push_back({Kind::kBackward, i});
  }
  return order;
}

// `ahead` forwards come before the first backward.
std::vector<PipelineAction> OneForwardOneBackwardOrder(
    int64_t ahead, int64_t num_microbatches) {
  std::vector<PipelineAction> order = ForwardOrder(ahead);
  for (int64_t i = 0; i < num_microbatches; ++i) {
    order.push_back({Kind::kBackward, i});
    if (i + ahead < num_microbatches) {
      order.push_back({Kind::kForward, i + ahead});
    }
  }
  return order;
}

}  // namespace

const char* ScheduleName(ScheduleKind kind) {
  return kind == ScheduleKind::kGPipe ? "ScheduleGPipe" : "Schedule1F1B";
}

std::vector<PipelineAction> ForwardOrder(int64_t num_microbatches) {
  std::vector<PipelineAction> order;
  for (int64_t i = 0; i < num_microbatches; ++i) {
    order.push_back({Kind::kForward, i});
  }
  return order;
}

std::vector<PipelineAction> TrainingOrder(ScheduleKind kind,
                                          int64_t stage_index,
                                          int64_t num_stages,
                                          int64_t num_microbatches) {
  TORCH_CHECK_VALUE(num_microbatches >= 1, ScheduleName(kind),
                    " needs at least one microbatch, not ", num_microbatches);
  if (kind == ScheduleKind::kGPipe) return GPipeOrder(num_microbatches);
  TORCH_CHECK_VALUE(num_microbatches >= num_stages,
                    "Schedule1F1B needs at least as many microbatches as "
                    "stages, but there are ",
                    num_microbatches, " microbatches and ", num_stages,
                    " stages; use more microbatches or ScheduleGPipe");
  return OneForwardOneBackwardOrder(num_stages - stage_index, num_microbatches);
}

}  // namespace fsdp
