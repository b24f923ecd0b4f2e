// SPDX-License-Identifier: Apache-2.0
// PipelineStage: a model part that this rank runs, and the part's place in the
// pipeline. A schedule runs it. Names and meaning are PyTorch's (torch/
// distributed/pipelining/stage.py, 2.15). For the thread that trains.
#ifndef FSDP_PARALLEL_PIPELINE_PIPELINE_STAGE_H_
#define FSDP_PARALLEL_PIPELINE_PIPELINE_STAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/visit_tensors.h"
#include "fsdp/forward.h"
#include "fsdp/mesh/device_mesh.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

using StageTensors = std::vector<at::Tensor>;
// Runs a stage's module on one microbatch: takes the inputs, or the previous
// stage's outputs, and returns the outputs.
using StageForward = std::function<StageTensors(const StageTensors&)>;

namespace internal {

// Calls module.forward with as many tensors as there are, from one to three,
// inside the module's exact boundary.
template <typename Impl>
StageTensors CallStage(Impl& module, const StageTensors& inputs) {
  StageTensors outputs;
  bool called = false;
  const auto call = [&](const auto&... tensors) {
    if constexpr (requires { module.forward(tensors...); }) {
      auto output = fsdp::forward(module, tensors...);
      VisitTensors(output, [&](at::Tensor& t) { outputs.push_back(t); });
      called = true;
    }
  };
  if (inputs.size() == 1) call(inputs[0]);
  if (inputs.size() == 2) call(inputs[0], inputs[1]);
  if (inputs.size() == 3) call(inputs[0], inputs[1], inputs[2]);
  TORCH_CHECK_VALUE(called, "forward of ", module.name(), " does not take ",
                    inputs.size(),
                    " tensors, as many as a microbatch or the previous stage "
                    "has; give PipelineStage a function that calls it");
  return outputs;
}

}  // namespace internal

// A stage's place among all stages.
struct StagePlace {
  int64_t stage_index;
  int64_t num_stages;
};

class PipelineStage {
 public:
  // `pp_mesh` has one axis, the pipeline. Without a place this rank's index on
  // it is the stage, and there are as many stages as ranks. With several stages
  // on a rank, which StagesOnRank lists, each has a place, and a module or a
  // part of one.
  // `module` comes from keep_modules. The module's forward takes one to three
  // tensors and returns a tensor, or several in a tuple or vector; each goes to
  // the next stage.
  template <typename Impl>
  PipelineStage(const torch::nn::ModuleHolder<Impl>& module,
                const DeviceMesh& pp_mesh,
                std::optional<StagePlace> place = std::nullopt)
      : PipelineStage(module.ptr(), pp_mesh, place) {}
  template <typename Impl>
  PipelineStage(const std::shared_ptr<Impl>& module, const DeviceMesh& pp_mesh,
                std::optional<StagePlace> place = std::nullopt) requires
      std::is_base_of_v<torch::nn::Module, Impl>
      : PipelineStage(
            std::static_pointer_cast<torch::nn::Module>(module),
            [module](const StageTensors& inputs) {
              return internal::CallStage(*module, inputs);
            },
            pp_mesh, place) {}
  // For other signatures: `forward` calls `module` and uses the same
  // parameters. Throws c10::ValueError for a mesh with several axes, and for a
  // stage index that is not below the number of stages.
  PipelineStage(std::shared_ptr<torch::nn::Module> module, StageForward forward,
                const DeviceMesh& pp_mesh,
                std::optional<StagePlace> place = std::nullopt);

  int64_t stage_index() const { return place_.stage_index; }
  int64_t num_stages() const { return place_.num_stages; }
  bool is_first() const { return stage_index() == 0; }
  bool is_last() const { return stage_index() == num_stages() - 1; }

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  const DeviceMesh& mesh() const { return mesh_; }

  // Runs the module; for a schedule.
  StageTensors Forward(const StageTensors& inputs) const {
    return forward_(inputs);
  }

 private:
  // Shared with the user, who trains it.
  std::shared_ptr<torch::nn::Module> module_;
  StageForward forward_;
  DeviceMesh mesh_;
  StagePlace place_{};
};

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_PIPELINE_STAGE_H_
