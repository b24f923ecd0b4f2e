// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/tensor/load_plan.h"

#include <optional>

#include "absl/status/statusor.h"
#include "c10/util/Exception.h"
#include "config/parallel_plan.h"

namespace fsdp {
namespace {

using PlannedKind = dcp::ParallelStyle::Kind;

std::optional<Placement> ToPlacement(
    const std::optional<dcp::ActivationLayout>& layout) {
  if (!layout.has_value()) return std::nullopt;
  if (layout->kind == dcp::ActivationLayout::Kind::kReplicate) {
    return Replicate();
  }
  return Shard(layout->dim);
}

ParallelStyle StyleWithoutLayouts(const dcp::ParallelStyle& style) {
  const ParallelStyleOptions options{
      .input_layouts = ToPlacement(style.input_layouts),
      .output_layouts = ToPlacement(style.output_layouts),
      .use_local_output = style.use_local_output.value_or(false)};
  switch (style.kind) {
    case PlannedKind::kColwise:
      return ColwiseParallel(options);
    case PlannedKind::kRowwise:
      return RowwiseParallel(options);
    case PlannedKind::kSequence:
      return SequenceParallel(
          {.sequence_dim = style.sequence_dim.value_or(1),
           .use_local_output = style.use_local_output.value_or(false)});
    case PlannedKind::kReplicate:
      break;
  }
  return ReplicateParallel();
}

ParallelStyle ToParallelStyle(const dcp::ParallelStyle& style) {
  ParallelStyle result = StyleWithoutLayouts(style);
  result.embedding = style.embedding;
  return result;
}

}  // namespace

ParallelizePlan to_parallelize_plan(const dcp::ParallelPlan& plan) {
  ParallelizePlan styles;
  for (const dcp::ParallelPlan::Entry& entry : plan.entries()) {
    styles.emplace_back(entry.pattern, ToParallelStyle(entry.style));
  }
  return styles;
}

ParallelizePlan load_plan(const std::string& path) {
  const absl::StatusOr<dcp::ParallelPlan> plan = load_parallel_plan(path);
  TORCH_CHECK_VALUE(plan.ok(), std::string(plan.status().message()));
  return to_parallelize_plan(*plan);
}

}  // namespace fsdp
