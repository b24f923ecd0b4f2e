// SPDX-License-Identifier: Apache-2.0
// Checks a stage's arguments and stores them.
//
// Tested by tests/fsdp/parallel/pipeline/schedules_test.cc.
#include "fsdp/parallel/pipeline/pipeline_stage.h"

#include "c10/util/Exception.h"

namespace fsdp {

PipelineStage::PipelineStage(std::shared_ptr<torch::nn::Module> module,
                             StageForward forward, const DeviceMesh& pp_mesh)
    : module_(std::move(module)), forward_(std::move(forward)), mesh_(pp_mesh) {
  TORCH_CHECK_VALUE(module_ != nullptr, "a stage needs a module");
  TORCH_CHECK_VALUE(mesh_.ndim() == 1,
                    "the mesh of a pipeline has one axis, not ", mesh_.ndim(),
                    ": slice it, as in mesh[\"pp\"]");
}

}  // namespace fsdp
