// SPDX-License-Identifier: Apache-2.0
// StepRun: one batch on one rank of a pipeline: the stages' microbatches, the
// messages that they exchange with neighbours, and their backwards. A schedule
// makes one for each step. For the thread that trains.
#ifndef FSDP_PARALLEL_PIPELINE_STEP_RUN_H_
#define FSDP_PARALLEL_PIPELINE_STEP_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/parallel/pipeline/microbatch_sync.h"
#include "fsdp/parallel/pipeline/order/message_plan.h"
#include "fsdp/parallel/pipeline/pipeline_stage.h"
#include "fsdp/parallel/pipeline/split_backward.h"
#include "fsdp/parallel/pipeline/stage_comm.h"

namespace fsdp {

// The step's work on this rank.
struct StepPlan {
  // Without activations, which the first microbatch adds.
  StepHeader header;
  // For the first and for the last stage: a piece for each microbatch.
  std::vector<StageTensors> inputs;
  std::vector<at::Tensor> targets;
  // For the last stage; null without a loss.
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> loss_fn;
  // The gradient for each microbatch's loss.
  double loss_scale = 1;
  bool keep_outputs = true;
};

class StepRun {
 public:
  // The first three must outlive this. `messages` has this rank's actions on
  // these stages.
  StepRun(const std::vector<PipelineStage>& stages, StageComm& comm,
          const MessagePlan& messages, StepPlan plan);

  // Runs the actions, and waits for all sent messages.
  void Run();

  // From the last stage, if it is on this rank, after Run: by microbatch,
  // detached.
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  const std::vector<at::Tensor>& losses() const { return losses_; }

 private:
  struct Microbatch {
    StageTensors inputs;
    StageTensors outputs;  // the graph's roots
    at::Tensor loss;
    StageTensors grads;  // for the outputs that require one
    std::optional<SplitBackward> split;
  };
  // A module's parameters; several stages may be parts of one module.
  struct ModuleRun {
    std::optional<MicrobatchSync> sync;
    // The backwards that still add to the parameters' gradients.
    int64_t num_to_come = 0;
  };
  struct StageRun {
    const PipelineStage* stage;
    ModuleRun* module;
    std::vector<Microbatch> microbatches;
    std::optional<StepHeader> received;   // from the previous stage
    std::optional<StepHeader> announced;  // to the next stage
  };

  bool IsHere(int64_t stage) const { return stages_.count(stage) != 0; }
  Microbatch& At(int64_t stage, int64_t microbatch);

  void Issue(const PipelineMessage& message);
  void ReceiveHeader(StageRun& run);
  void WaitFor(std::map<PipelineMessage, StageTransfer>& transfers,
               const PipelineMessage& message);
  void Compute(const PipelineAction& action);

  void Forward(StageRun& run, int64_t microbatch);
  void PassOn(StageRun& run, int64_t microbatch);
  void CheckOutputs(StageRun& run, const StageTensors& outputs,
                    int64_t microbatch);
  void FinishLastStage(Microbatch& batch, int64_t microbatch);

  void Backward(StageRun& run, int64_t microbatch);
  void BackwardInput(StageRun& run, int64_t microbatch);
  void BackwardWeight(StageRun& run, int64_t microbatch);
  // The roots that have gradients, which are set for a loss.
  StageTensors Roots(Microbatch& batch) const;
  void BeforeWeights(StageRun& run);
  void PassBack(StageRun& run, int64_t microbatch, StageTensors grads);

  StageComm& comm_;
  const MessagePlan& messages_;
  StepPlan plan_;
  std::map<const torch::nn::Module*, ModuleRun> modules_;
  std::map<int64_t, StageRun> stages_;
  std::map<PipelineMessage, StageTransfer> sent_;
  std::map<PipelineMessage, StageTransfer> received_;
  std::vector<StageTransfer> headers_sent_;
  std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> losses_;
};

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_STEP_RUN_H_
