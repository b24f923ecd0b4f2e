// SPDX-License-Identifier: Apache-2.0
// Checks a stage's arguments and stores them.
//
// Tested by tests/fsdp/parallel/pipeline/schedules_test.cc.
#include "fsdp/parallel/pipeline/pipeline_stage.h"

#include "c10/util/Exception.h"

namespace fsdp {

PipelineStage::PipelineStage(std::shared_ptr<torch::nn::Module> module,
                             StageForward forward, const DeviceMesh& pp_mesh,
                             std::optional<StagePlace> place)
    : module_(std::move(module)), forward_(std::move(forward)), mesh_(pp_mesh) {
  TORCH_CHECK_VALUE(module_ != nullptr, "a stage needs a module");
  TORCH_CHECK_VALUE(mesh_.ndim() == 1,
                    "the mesh of a pipeline has one axis, not ", mesh_.ndim(),
                    ": slice it, as in mesh[\"pp\"]");
  place_ = place.value_or(StagePlace{mesh_.get_local_rank(), mesh_.size()});
  TORCH_CHECK_VALUE(
      place_.stage_index >= 0 && place_.stage_index < place_.num_stages,
      "the stage ", place_.stage_index, " is not one of ", place_.num_stages,
      " stages, which are counted from 0");
}

}  // namespace fsdp
