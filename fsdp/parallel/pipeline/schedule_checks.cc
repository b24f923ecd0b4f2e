// SPDX-License-Identifier: Apache-2.0
// Checks stages and orders before a schedule uses them.
//
// Tested by tests/fsdp/parallel/pipeline/pipeline_errors_test.cc.
#include "fsdp/parallel/pipeline/schedule_checks.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/parallel/pipeline/order/timeline.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace fsdp {
namespace {

std::string Key(const ProcessGroup& group, int64_t number, int64_t rank) {
  return absl::StrCat("pipeline/", key_of(group), "/checks/", number, "/",
                      rank);
}

// Throws on all ranks if one has an error.
void ShareError(const ProcessGroup& group, const std::string& mine) {
  // How many schedules a group's ranks have made.
  static auto& numbers = *new std::map<std::string, int64_t>();
  const int64_t number = numbers[key_of(group)]++;
  const auto store = job_store();
  const int64_t my_rank = group->getRank();
  store->set(Key(group, number, my_rank),
             std::vector<uint8_t>(mine.begin(), mine.end()));
  std::string others;
  for (int64_t rank = 0; rank < group->getSize(); ++rank) {
    if (rank == my_rank) continue;
    const std::vector<uint8_t> text = store->get(Key(group, number, rank));
    if (text.empty()) continue;
    absl::StrAppend(
        &others, others.empty() ? "" : "; ", "rank ", rank,
        " of the pipeline: ", std::string(text.begin(), text.end()));
  }
  // Everybody is here, so nobody reads the previous keys any more.
  if (number > 0) store->deleteKey(Key(group, number - 1, my_rank));
  TORCH_CHECK_VALUE(mine.empty(), mine);
  TORCH_CHECK_VALUE(others.empty(), others);
}

void CheckStages(ScheduleKind kind, const std::vector<PipelineStage>& stages,
                 const std::vector<int64_t>& expected, bool has_loss) {
  const PipelineStage& first = stages.front();
  std::vector<int64_t> places;
  for (const PipelineStage& stage : stages) {
    TORCH_CHECK_VALUE(
        stage.mesh().get_group() == first.mesh().get_group() &&
            stage.num_stages() == first.num_stages(),
        "the stages of a rank must be on one mesh and among equally many "
        "stages, but stage ",
        stage.stage_index(), " is one of ", stage.num_stages(), " and stage ",
        first.stage_index(), " one of ", first.num_stages());
    places.push_back(stage.stage_index());
    TORCH_CHECK_VALUE(
        !has_loss || !stage.module()->parameters().empty(), "stage ",
        stage.stage_index(), " of ", stage.num_stages(),
        " has no parameters, so there is nothing to train on it; keep a layer "
        "in each stage, or use fewer stages");
  }
  std::sort(places.begin(), places.end());
  TORCH_CHECK_VALUE(places == expected, "with ", ScheduleName(kind), " rank ",
                    first.mesh().get_local_rank(), " has the stages ",
                    absl::StrJoin(expected, ", "), ", but was given ",
                    absl::StrJoin(places, ", "));
}

std::vector<int64_t> ListStages(const PipelineOrder& order, int64_t rank) {
  std::vector<int64_t> stages;
  const std::vector<int64_t> ranks = StageRanks(order);
  for (size_t stage = 0; stage < ranks.size(); ++stage) {
    if (ranks[stage] == rank) stages.push_back(static_cast<int64_t>(stage));
  }
  return stages;
}

PipelineOrder MakeChecked(ScheduleKind kind,
                          const std::vector<PipelineStage>& stages,
                          int64_t num_microbatches, bool has_loss,
                          PipelineOrder order) {
  const DeviceMesh& mesh = stages.front().mesh();
  const int64_t num_stages = stages.front().num_stages();
  if (kind != ScheduleKind::kCustom) {
    const PipelineShape shape{mesh.size(), static_cast<int64_t>(stages.size()),
                              num_microbatches};
    TORCH_CHECK_VALUE(num_stages == shape.num_stages(), num_stages,
                      " stages cannot be divided among ", shape.num_ranks,
                      " ranks with ", shape.stages_per_rank,
                      " on each, which "
                      "makes ",
                      shape.num_stages());
    order = MakePipelineOrder(kind, shape);
  }
  const auto num_ranks = static_cast<int64_t>(order.size());
  const auto stages_in_order = static_cast<int64_t>(StageRanks(order).size());
  TORCH_CHECK_VALUE(num_ranks == mesh.size() && stages_in_order == num_stages,
                    "the order is for ", num_ranks, " ranks and ",
                    stages_in_order, " stages, but the pipeline has ",
                    mesh.size(), " ranks and ", num_stages, " stages");
  MakeTimeline(order);
  CheckStages(kind, stages, ListStages(order, mesh.get_local_rank()), has_loss);
  return order;
}

}  // namespace

PipelineOrder CheckedOrder(ScheduleKind kind,
                           const std::vector<PipelineStage>& stages,
                           int64_t num_microbatches, bool has_loss,
                           PipelineOrder order) {
  TORCH_CHECK_VALUE(!stages.empty(), ScheduleName(kind),
                    " needs this rank's stages, but there are none");
  PipelineOrder checked;
  const std::string error = CatchErrorText([&] {
    checked =
        MakeChecked(kind, stages, num_microbatches, has_loss, std::move(order));
  });
  ShareError(stages.front().mesh().get_group(), error);
  return checked;
}

}  // namespace fsdp
